// SPDX-License-Identifier: Apache-2.0
// Flags that the deciding sub-commands share.
#pragma once

#include <string>

#include "planner/commands/arguments.hpp"
#include "planner/search_space.hpp"

namespace headroom {

/// `2%`, `2` or `0.5%` as a share; below 100 %. `flag` without dashes.
double read_percent(const Arguments& arguments, const std::string& flag, double otherwise);

PublishedRecipes all_published_recipes();

/// The items of a comma list, blanks around them removed. Throws for an empty item.
std::vector<std::string> split_list(const std::string& list, const std::string& flag);

/// The methods of the comma list behind --method, in its order.
std::vector<Method> read_methods(const std::string& list);

}  // namespace headroom
