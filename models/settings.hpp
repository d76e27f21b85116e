// SPDX-License-Identifier: Apache-2.0
// What the user and the recipe files say, before it is resolved into a Recipe: every field may be absent.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "models/cluster.hpp"
#include "models/recipe.hpp"
#include "models/transformer.hpp"

namespace headroom {

/// One field per recipe key (design: `method, context, ..., allocator.expandable_segments`). Absent = not said.
struct Settings {
    std::optional<Method> method;
    std::optional<Tokens> context;
    std::optional<std::int64_t> batch;
    std::optional<int> ulysses;
    std::optional<int> ring;
    std::optional<int> heads_per_stage;
    std::optional<Tokens> chunk_tokens;
    std::optional<Implementation> implementation;
    std::optional<AttentionKernel> attention_kernel;
    std::optional<Rotation> rotation;
    std::optional<Checkpointing> checkpointing;
    std::optional<HostPlace> offload_block_inputs;
    std::optional<bool> offload_optimizer;
    std::optional<bool> offload_parameters;
    std::optional<bool> offload_chunks;
    std::optional<Tiling> tiling_norm, tiling_mlp, tiling_loss;
    std::optional<ShardingStrategy> sharding_strategy;
    std::optional<int> sharding_degree;
    std::optional<NumberFormat> precision_compute, precision_parameters, precision_reduction, precision_optimizer;
    std::optional<bool> expandable_segments;

    bool operator==(const Settings&) const = default;
};

/// Fills what `over` leaves open from `under`.
Settings layer(const Settings& over, const Settings& under);

/// Turns settings into a complete recipe: first what was said, then what the code brings that was named (shipped.hpp),
/// then `published` (the method's recipe as its authors ship it, same keys), then what the model and the cluster
/// decide: Ulysses as large as heads and the node allow, the rest ring; heads per stage = Ulysses degree; pinned block
/// inputs unless host memory asks for pageable. Throws Error naming the recipe key as `where` when the combination is
/// impossible (see constraints.hpp).
Recipe resolve(const Settings& settings, const Settings& published, const Transformer& model, const Cluster& cluster);

}  // namespace headroom
