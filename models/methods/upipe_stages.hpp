// SPDX-License-Identifier: Apache-2.0
// How UPipe cuts the heads into stages, and what one stage's attention is.
#pragma once

#include <algorithm>

#include "models/methods/method.hpp"

namespace headroom {

/// How the heads fall into stages (section 1.1 of the method notes, for any U).
struct Stages {
    std::int64_t count;        ///< pi = H/U
    std::int64_t reuse;        ///< stages that share one K/V chunk
    std::int64_t kv_heads;     ///< KV heads of a chunk
    Bytes query;               ///< u: one stage of Q on a rank
    Bytes key;                 ///< one chunk of K
    Bytes lse;                 ///< log-sum-exp of one stage
    std::int64_t query_width;  ///< columns of Wq that a stage uses
    std::int64_t key_width;
    std::int64_t group;  ///< query heads per KV head inside the kernel
    bool single_head;    ///< one head on each rank: views need no copy

    std::int64_t query_weight(std::int64_t stage) const { return stage * query_width; }  ///< first row of Wq
    std::int64_t key_weight(std::int64_t stage) const { return stage / reuse * key_width; }
    bool loads_chunk(std::int64_t stage) const { return stage % reuse == 0; }
    bool drops_chunk(std::int64_t stage) const { return stage % reuse == reuse - 1; }
};

inline Stages stages_of(const Workload& work) {
    const std::int64_t heads = work.recipe.heads_per_stage;
    Stages stages{};
    stages.count = work.model.heads / heads;
    stages.kv_heads = std::min(heads, work.kv_heads);
    stages.reuse = stages.count / (work.kv_heads / stages.kv_heads);
    stages.query = work.query / stages.count;
    stages.key = work.key / (work.kv_heads / stages.kv_heads);
    stages.lse = work.lse / stages.count;
    stages.query_width = heads * work.model.head_dim;
    stages.key_width = stages.kv_heads * work.model.head_dim;
    stages.group = heads / stages.kv_heads;
    stages.single_head = heads == work.recipe.ulysses && work.recipe.batch == 1;
    return stages;
}

inline Attention stage_kernel(const Workload& work, const Stages& stages, bool backward) {
    return {.query_len = work.ring_tokens(),
            .key_len = work.ring_tokens(),
            .heads = static_cast<std::int32_t>(stages.query_width / work.model.head_dim / work.recipe.ulysses),
            .kv_heads = static_cast<std::int32_t>(stages.kv_heads / work.recipe.ulysses),
            .head_dim = static_cast<std::int32_t>(work.model.head_dim),
            .batch = static_cast<std::int32_t>(work.recipe.batch),
            .causal = true,
            .backward = backward};
}

}  // namespace headroom
