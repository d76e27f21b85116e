// SPDX-License-Identifier: Apache-2.0
// A grid as flags and files name it: comma lists, ranges, YAML lists.
#pragma once

#include <string>
#include <vector>

#include "planner/commands/arguments.hpp"
#include "planner/grid.hpp"

namespace headroom {

std::vector<FlagGroup> grid_flags();

/// Flags win over --set, --set over --grid, --grid over --recipe.
Grid read_grid(const Arguments& arguments);

/// `128K:4M:128K` counts up by the step, `128K:4M:x2` multiplies; anything else is one value. `flag` for errors.
std::vector<std::string> expand_range(const std::string& text, const std::string& flag);

}  // namespace headroom
