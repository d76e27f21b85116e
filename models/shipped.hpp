// SPDX-License-Identifier: Apache-2.0
// What the code behind an implementation does by itself, and what it cannot be made to do as it is shipped.
#pragma once

#include <string>
#include <vector>

#include "models/cluster.hpp"
#include "models/recipe.hpp"
#include "models/settings.hpp"

namespace headroom {

/// What a code does whatever the method, below what is said and above the method's recipe. Empty for the codes that the
/// methods' recipes are of, and for `lean`.
Settings shipped_settings(Implementation implementation);

/// The longest context that the shipped code accepts, whatever the memory; longest_context where nothing stops it.
Tokens implementation_ceiling(const Recipe& recipe);

/// Keys of the settings that the code has no word for, so that what it does instead is something else. The attention
/// kernel is not among them: PyTorch picks one by itself. Nothing is asked of untied-ulysses, whose buffers for other
/// settings are planned as asked.
std::vector<std::string> unexpressed(const Recipe& recipe, const Cluster& cluster);

/// Why the shipped code does not run the recipe, whose memory and time are then those of the buffers and launches that
/// it would have; empty when it does. Every report asks this one.
std::string beyond_shipped_code(const Recipe& recipe, const Cluster& cluster);

}  // namespace headroom
