// SPDX-License-Identifier: Apache-2.0
#include "models/settings.hpp"

#include <algorithm>

#include "models/constraints.hpp"
#include "models/shipped.hpp"

namespace headroom {
namespace {

/// Ulysses as large as the heads and the node allow (design, section 5): the largest valid degree that divides the
/// ranks and stays inside a node.
int largest_ulysses(const Transformer& model, const Cluster& cluster, int ranks, bool inside_node) {
    int best = 1;
    const int most = inside_node ? std::min(ranks, cluster.gpus_per_node) : ranks;
    for (int degree = 1; degree <= most; ++degree) {
        if (ranks % degree != 0 || (inside_node && cluster.gpus_per_node % degree != 0)) continue;
        if (is_valid_ulysses_degree(model, degree)) best = degree;
    }
    return best;
}

void resolve_degrees(Recipe& recipe, const Settings& said, const Transformer& model, const Cluster& cluster) {
    const int gpus = cluster.gpus();
    switch (recipe.method) {
        case Method::native:
        case Method::ring:
            recipe.ulysses = said.ulysses.value_or(1);
            recipe.ring = said.ring.value_or(gpus);
            break;
        case Method::ulysses:
        case Method::fpdt:
            recipe.ring = said.ring.value_or(1);
            recipe.ulysses = said.ulysses.value_or(largest_ulysses(model, cluster, gpus, false));
            break;
        case Method::usp:
        case Method::upipe: {
            const int outer = said.ring.value_or(0);
            const int inner_ranks = outer > 0 && gpus % outer == 0 ? gpus / outer : gpus;
            recipe.ulysses = said.ulysses.value_or(largest_ulysses(model, cluster, inner_ranks, true));
            recipe.ring = outer > 0 ? outer : std::max(1, gpus / std::max(1, recipe.ulysses));
            break;
        }
    }
}

/// PyTorch pins host memory in powers of two; a block input of 5 GiB takes 8. The published scripts switch to pageable
/// memory at the length where this no longer fits the node, and so does the default here.
HostPlace place_block_inputs(const Recipe& recipe, const Transformer& model, const Cluster& cluster) {
    const std::int64_t rows = recipe.batch * recipe.context.value / recipe.context_parallel();
    const std::int64_t input = bytes_per_element(recipe.precision.compute) * rows * model.hidden;
    const std::int64_t table = 4 * rows * model.head_dim;
    const std::int64_t per_rank = model.layers * (next_power_of_two(input) + next_power_of_two(table));
    const double usable = static_cast<double>(cluster.host_memory.value) * cluster.host_memory_usable;
    return static_cast<double>(per_rank) * cluster.gpus_per_node <= usable ? HostPlace::pinned : HostPlace::pageable;
}

/// Small enough to multiply out; check() refuses the rest with a reason.
bool countable(const Recipe& recipe, const Transformer& model, const Cluster& cluster) {
    return recipe.context.value > 0 && recipe.context <= longest_context && recipe.batch > 0 &&
           recipe.batch <= longest_context.value / recipe.context.value && recipe.ulysses > 0 &&
           recipe.ulysses <= model.heads && recipe.ring > 0 && recipe.ring <= cluster.gpus();
}

/// The method's recipe, under what a code brings that was named instead of the recipe's own.
Settings base_of(const Settings& said, const Settings& published) {
    const bool named = said.implementation && said.implementation != published.implementation;
    return named ? layer(shipped_settings(*said.implementation), published) : published;
}

template <class T>
void fill(std::optional<T>& field, const std::optional<T>& under) {
    if (!field) field = under;
}

}  // namespace

Settings layer(const Settings& over, const Settings& under) {
    Settings merged = over;
    fill(merged.method, under.method);
    fill(merged.context, under.context);
    fill(merged.batch, under.batch);
    fill(merged.ulysses, under.ulysses);
    fill(merged.ring, under.ring);
    fill(merged.heads_per_stage, under.heads_per_stage);
    fill(merged.chunk_tokens, under.chunk_tokens);
    fill(merged.implementation, under.implementation);
    fill(merged.attention_kernel, under.attention_kernel);
    fill(merged.rotation, under.rotation);
    fill(merged.checkpointing, under.checkpointing);
    fill(merged.offload_block_inputs, under.offload_block_inputs);
    fill(merged.offload_optimizer, under.offload_optimizer);
    fill(merged.offload_parameters, under.offload_parameters);
    fill(merged.offload_chunks, under.offload_chunks);
    fill(merged.tiling_norm, under.tiling_norm);
    fill(merged.tiling_mlp, under.tiling_mlp);
    fill(merged.tiling_loss, under.tiling_loss);
    fill(merged.sharding_strategy, under.sharding_strategy);
    fill(merged.sharding_degree, under.sharding_degree);
    fill(merged.precision_compute, under.precision_compute);
    fill(merged.precision_parameters, under.precision_parameters);
    fill(merged.precision_reduction, under.precision_reduction);
    fill(merged.precision_optimizer, under.precision_optimizer);
    fill(merged.expandable_segments, under.expandable_segments);
    return merged;
}

Recipe resolve(const Settings& settings, const Settings& published, const Transformer& model, const Cluster& cluster) {
    const Settings said = layer(settings, base_of(settings, published));
    Recipe recipe;
    recipe.method = said.method.value_or(recipe.method);
    recipe.context = said.context.value_or(Tokens{0});
    recipe.batch = said.batch.value_or(1);
    resolve_degrees(recipe, said, model, cluster);

    recipe.implementation = said.implementation.value_or(recipe.implementation);
    recipe.attention_kernel = said.attention_kernel.value_or(recipe.attention_kernel);
    recipe.rotation = said.rotation.value_or(recipe.rotation);
    recipe.checkpointing = said.checkpointing.value_or(recipe.checkpointing);
    recipe.offload.parameters = said.offload_parameters.value_or(false);
    recipe.tiling.norm = said.tiling_norm.value_or(Tiling{});
    recipe.tiling.mlp = said.tiling_mlp.value_or(Tiling{});
    recipe.tiling.loss = said.tiling_loss.value_or(Tiling{});
    recipe.sharding.strategy = said.sharding_strategy.value_or(recipe.sharding.strategy);
    const bool sharded = recipe.sharding.strategy != ShardingStrategy::none;
    recipe.offload.optimizer = settings.offload_optimizer.value_or(sharded && said.offload_optimizer.value_or(false));
    recipe.sharding.degree = said.sharding_degree.value_or(sharded ? cluster.gpus() : 1);
    recipe.precision.compute = said.precision_compute.value_or(recipe.precision.compute);
    recipe.precision.parameters = said.precision_parameters.value_or(recipe.precision.parameters);
    recipe.precision.reduction = said.precision_reduction.value_or(recipe.precision.reduction);
    recipe.precision.optimizer = said.precision_optimizer.value_or(recipe.precision.optimizer);
    recipe.expandable_segments = said.expandable_segments.value_or(true);

    // Settings of one method are taken over from another's file only when the user typed them.
    const bool upipe = recipe.method == Method::upipe;
    const bool fpdt = recipe.method == Method::fpdt;
    if (upipe) recipe.heads_per_stage = said.heads_per_stage.value_or(recipe.ulysses);
    if (!upipe) recipe.heads_per_stage = settings.heads_per_stage.value_or(0);
    if (fpdt) recipe.chunk_tokens = said.chunk_tokens.value_or(Tokens{64 * kibi});
    if (!fpdt) recipe.chunk_tokens = settings.chunk_tokens.value_or(Tokens{0});
    recipe.offload.chunks = fpdt ? said.offload_chunks.value_or(true) : settings.offload_chunks.value_or(false);

    if (settings.offload_block_inputs) {
        recipe.offload.block_inputs = *settings.offload_block_inputs;
    } else if (recipe.checkpointing == Checkpointing::full && said.offload_block_inputs) {
        recipe.offload.block_inputs = *said.offload_block_inputs;
    } else if (recipe.checkpointing == Checkpointing::full && countable(recipe, model, cluster)) {
        recipe.offload.block_inputs = place_block_inputs(recipe, model, cluster);
    }
    check(recipe, model, cluster);
    return recipe;
}

}  // namespace headroom
