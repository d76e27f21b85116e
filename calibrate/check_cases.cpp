// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>

#include "calibrate/step_check.hpp"

namespace headroom {
namespace {

bool is_stage_size(const TransformerShape& model, std::int64_t heads, int ulysses) {
    if (heads % ulysses != 0 || model.heads % heads != 0) return false;
    return heads < model.kv_heads ? model.kv_heads % heads == 0 : heads % model.kv_heads == 0;
}

CheckCase make_case(const std::string& name, const TransformerShape& model, const Recipe& recipe) {
    Cluster cluster;
    cluster.gpus_per_node = recipe.context_parallel();
    Transformer named;
    static_cast<TransformerShape&>(named) = model;
    return {name, make_workload(named, cluster, recipe)};
}

/// UPipe with at most `stage_heads` heads of each rank in a stage, FPDT in two chunks, all others.
bool is_chosen(const Recipe& recipe, int stage_heads) {
    if (recipe.method == Method::upipe) return recipe.heads_per_stage <= stage_heads * recipe.ulysses;
    return recipe.method != Method::fpdt || 2 * recipe.chunk_tokens.value == recipe.context.value;
}

}  // namespace

std::vector<CheckCase> check_cases(int ranks, const TransformerShape& model, std::int64_t context,
                                   std::int64_t element) {
    Recipe base;
    base.context = Tokens{context};
    base.implementation = Implementation::lean;
    base.attention_kernel = AttentionKernel::cudnn;
    base.sharding = {ShardingStrategy::none, 1};
    if (element == 4) base.precision.compute = NumberFormat::fp32;

    std::vector<CheckCase> cases;
    const auto add = [&](const std::string& name, const Recipe& recipe) {
        if (model.qk_norm == QkNorm::none) {
            cases.push_back(make_case(name, model, recipe));
        } else if (is_chosen(recipe, 1)) {
            cases.push_back(make_case(name + ", QK norm", model, recipe));
        }
    };
    for (int ulysses = 1; ulysses <= ranks; ++ulysses) {
        if (ranks % ulysses != 0 || model.kv_heads % ulysses != 0) continue;
        Recipe recipe = base;
        recipe.ulysses = ulysses;
        recipe.ring = ranks / ulysses;
        recipe.method = ulysses == 1 ? Method::ring : recipe.ring == 1 ? Method::ulysses : Method::usp;
        add(ranks == 1                     ? "one rank"
            : recipe.method == Method::usp ? fmt::format("usp {}x{}", ulysses, recipe.ring)
                                           : std::string(to_string(recipe.method)),
            recipe);
    }
    if (model.kv_heads % ranks != 0) return cases;
    base.ulysses = ranks;
    for (std::int64_t heads = 1; heads <= model.heads; ++heads) {
        if (!is_stage_size(model, heads, ranks)) continue;
        Recipe recipe = base;
        recipe.method = Method::upipe;
        recipe.heads_per_stage = static_cast<int>(heads);
        add(fmt::format("upipe, U = {} of {}", heads, model.heads), recipe);
    }
    for (const std::int64_t chunks : {1, 2, 3, 4}) {
        for (const bool offload : {false, true}) {
            Recipe recipe = base;
            recipe.method = Method::fpdt;
            recipe.chunk_tokens = Tokens{context / chunks};
            recipe.offload.chunks = offload;
            if (context % (chunks * 2 * ranks) != 0) continue;
            add(fmt::format("fpdt, {} chunk{}{}", chunks, chunks == 1 ? "" : "s", offload ? " offloaded" : ""), recipe);
        }
    }
    return cases;
}

std::vector<CheckCase> step_cases(int ranks, const TransformerShape& model, std::int64_t context,
                                  std::int64_t element) {
    // Tiles that do not divide the rows of 1, 2 or 4 ranks.
    const Tiling tile{Tiling::Kind::tokens, std::max<std::int64_t>(1, 3 * context / 16)};
    std::vector<CheckCase> cases;
    for (const CheckCase& attention : check_cases(ranks, model, context, element)) {
        Recipe recipe = attention.work.recipe;
        if (!is_chosen(recipe, 2)) continue;
        const std::string name = "step " + attention.name + (model.tied_embeddings ? ", tied" : "");
        recipe.sharding = {ShardingStrategy::fsdp, ranks};
        recipe.tiling.mlp = recipe.tiling.loss = tile;
        cases.push_back(make_case(name, model, recipe));
        if (model.qk_norm != QkNorm::none) continue;
        recipe.offload.block_inputs = HostPlace::pinned;
        cases.push_back(make_case(name + ", inputs on host", model, recipe));
        if (recipe.method != (ranks == 1 ? Method::ring : Method::ulysses)) continue;
        recipe.offload.block_inputs = HostPlace::none;
        recipe.checkpointing = Checkpointing::none;
        cases.push_back(make_case(name + ", no checkpoints", model, recipe));
    }
    return cases;
}

}  // namespace headroom
