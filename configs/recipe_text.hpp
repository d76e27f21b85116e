// SPDX-License-Identifier: Apache-2.0
// Recipes as text: the keys of recipe files and of --set, one table for reading and writing.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "configs/reader.hpp"
#include "models/recipe.hpp"
#include "models/settings.hpp"

namespace headroom {

struct RecipeLine {
    std::string key;    ///< as in recipe files: `offload.block_inputs`
    std::string value;  ///< reads back to the same setting
};

/// Every setting that means something for the recipe's method, in the order of the documentation. Left out:
/// heads_per_stage and chunk_tokens while they are 0, rotation of other methods than native.
std::vector<RecipeLine> describe(const Recipe& recipe);

/// All keys, in the same order.
std::vector<std::string> recipe_keys();

/// Puts one value into its setting; throws Error for an unknown key or a value of another type.
void set_recipe_key(Settings& settings, const std::string& key, const Value& value);

}  // namespace headroom
