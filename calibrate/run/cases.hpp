// SPDX-License-Identifier: Apache-2.0
// What `headroom calibrate run` is asked for, as a list of recipes to execute one after the other.
#pragma once

#include <string>
#include <vector>

#include "calibrate/options.hpp"
#include "models/cluster.hpp"
#include "models/recipe.hpp"
#include "models/transformer.hpp"

namespace headroom {

struct RunCase {
    std::string name;  ///< "upipe 512K U 8, ulysses 2, ring 1"
    Transformer model;
    Cluster cluster;
    Recipe recipe;
    bool blocks_only = false;
    std::string invalid;  ///< why it cannot be run; empty when it can
};

/// Every combination of the lists: methods, contexts, heads per stage (upipe), tokens per chunk (fpdt). A combination
/// that no recipe allows, or whose step has no description, is a case with a reason. Throws Error (usage) for what is
/// wrong with all of them.
///
/// What is not said follows one common frame, so that methods differ by their attention alone: the lean schedule,
/// cuDNN, one sequence, bf16 under FSDP, block inputs in pinned host memory; then the method's published recipe.
std::vector<RunCase> plan_cases(const RunOptions& options);

}  // namespace headroom
