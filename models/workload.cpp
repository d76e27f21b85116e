// SPDX-License-Identifier: Apache-2.0
#include "models/workload.hpp"

#include <algorithm>

namespace headroom {

Workload make_workload(const Transformer& model, const Cluster& cluster, const Recipe& recipe, RingRole role) {
    Workload work;
    work.model = model;
    work.recipe = recipe;
    work.parameters = count_parameters(model);
    work.role = role;
    work.gpus = cluster.gpus();
    work.gpus_per_node = cluster.gpus_per_node;

    work.element = bytes_per_element(recipe.precision.compute);
    work.tokens = recipe.batch * recipe.context.value / recipe.context_parallel();
    work.kv_heads = std::max<std::int64_t>(model.kv_heads, recipe.ulysses);
    work.group = model.heads / work.kv_heads;

    work.hidden = {work.element * work.tokens * model.hidden};
    work.query = {work.element * work.tokens * model.query_width()};
    work.key = {work.element * work.tokens * work.kv_heads * model.head_dim};
    work.lse = {4 * work.tokens * model.heads};
    work.rotary = {4 * work.tokens * model.head_dim};
    return work;
}

Tiles tiles_of(const Tiling& tiling, std::int64_t tokens, std::int64_t hidden) {
    Tiles tiles;
    tiles.tokens = tokens;
    if (tiling.kind == Tiling::Kind::off) return tiles;
    tiles.tiled = true;
    tiles.count =
        tiling.kind == Tiling::Kind::tokens ? divide_round_up(tokens, tiling.tokens) : divide_round_up(tokens, hidden);
    tiles.tokens = divide_round_up(tokens, tiles.count);
    return tiles;
}

}  // namespace headroom
