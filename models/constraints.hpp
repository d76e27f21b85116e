// SPDX-License-Identifier: Apache-2.0
// What makes a recipe valid for a model and a cluster, and which contexts a method can split without remainder.
#pragma once

#include <string>
#include <vector>

#include "models/cluster.hpp"
#include "models/recipe.hpp"
#include "models/transformer.hpp"

namespace headroom {

inline constexpr Tokens longest_context{std::int64_t{1} << 40};

/// Ulysses degrees that divide the query heads and divide, or are divided by, the KV heads.
std::vector<int> valid_ulysses_degrees(const Transformer& model);
bool is_valid_ulysses_degree(const TransformerShape& model, std::int64_t degree);

/// Heads per stage that UPipe can run at this Ulysses degree: multiples of it that divide the heads and keep whole
/// query groups per stage.
std::vector<int> valid_heads_per_stage(const Transformer& model, int ulysses);

/// Every context must be a multiple of this: ranks, two zig-zag chunks per ring rank, FPDT chunks.
Tokens context_granule(const Recipe& recipe);

/// Throws Error{what, where = recipe key, hint} for the first rule the recipe breaks.
void check(const Recipe& recipe, const Transformer& model, const Cluster& cluster);

/// Things a user should know that do not make the recipe invalid.
std::vector<std::string> warnings(const Recipe& recipe, const Transformer& model, const Cluster& cluster);

}  // namespace headroom
