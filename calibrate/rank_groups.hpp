// SPDX-License-Identifier: Apache-2.0
// Who talks to whom: the ranks of each communication group, numbered ring-major as the planner's topology has them.
#pragma once

#include <vector>

#include "models/recipe.hpp"
#include "models/schedule.hpp"

namespace headroom {

/// The ranks of `rank`'s group, in the order of their place in it.
std::vector<int> group_members(const Recipe& recipe, CommGroup group, int rank);
/// Groups of more than one rank that the schedule's collectives use.
std::vector<CommGroup> groups_in_use(const Schedule& schedule, const Recipe& recipe);
/// Place of a rank in its ring.
int ring_rank(const Recipe& recipe, int rank);

}  // namespace headroom
