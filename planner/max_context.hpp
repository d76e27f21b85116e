// SPDX-License-Identifier: Apache-2.0
// The longest context a method can train, and what stops it there.
#pragma once

#include <string>

#include "models/settings.hpp"
#include "planner/plan.hpp"

namespace headroom {

struct MaxContext {
    Method method{};
    bool valid = false;      ///< false: the method cannot run at all here, `limited_by` says why
    Recipe recipe;           ///< with the longest context
    Tokens context;          ///< 0 when not even the shortest context fits
    Tokens by_memory;        ///< the same; longer where the shipped code ends before memory does
    std::string limited_by;  ///< "GPU memory: backward of block 1, ...", "host memory: ...", or the rule broken
    Plan plan;               ///< at that context, with its step time; empty when it is 0
};

/// Searches the multiples of the method's granule (context_granule times 128 tokens a rank), up to where the shipped
/// code ends.
/// `settings` must not hold a context. Settings that resolve by length (host buffers) may change along the way.
MaxContext max_context(const Settings& settings, const Settings& published, const Transformer& model,
                       const Cluster& cluster, const TimeBasis& basis = {});

}  // namespace headroom
