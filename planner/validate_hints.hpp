// SPDX-License-Identifier: Apache-2.0
// What a difference between a measurement and its prediction looks like: mistakes that people reported, by their trace.
#pragma once

#include <string>
#include <vector>

#include "planner/validate.hpp"

namespace headroom {

bool same_machine(const Cluster& a, const Cluster& b);
/// The same settings, the context apart when `any_context`.
bool same_recipe(const Measurement& a, const Measurement& b, bool any_context = false);

/// The measured activations are C times, or a C-th of, the predicted ones: the sequence was not split, or split twice.
/// Empty when neither.
std::string activation_hint(const Comparison& row, const Plan& plan);

/// Adds notes to rows that contradict each other: longest contexts that sequence parallelism left as they were, and a
/// larger model that was cheaper in the same setting.
void add_pair_hints(std::vector<Comparison>& rows);

}  // namespace headroom
