// SPDX-License-Identifier: Apache-2.0
// What to change in a plan that does not fit, at the least cost in speed.
#pragma once

#include <optional>
#include <vector>

#include "planner/explain.hpp"

namespace headroom {

struct CheapestChange {
    std::vector<Difference> changed;
    Plan plan;                ///< with the change; it fits
    double speed_change = 0;  ///< share of the plan's tokens/s per GPU
};

/// Method, degrees, context and batch stay. What `said` holds stays too if something fits so; else it may change.
/// Of changes that cost about as little, the one that touches the fewest settings. Nothing without a step time.
std::optional<CheapestChange> cheapest_change(const Plan& plan, const Settings& said, const PublishedRecipes& published,
                                              const TimeBasis& basis);

}  // namespace headroom
