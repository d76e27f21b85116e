// SPDX-License-Identifier: Apache-2.0
// Where weights lie in the flat tensors that are sharded and gathered, in elements. Matrices are [out][in].
#pragma once

#include "models/workload.hpp"

namespace headroom {

/// Of one block.
struct BlockWeights {
    std::int64_t input_norm, query, key, value, output, residual_norm;
    std::int64_t query_norm, key_norm;  ///< empty without QK norm
    std::int64_t gate, up, down, size;
};
inline BlockWeights block_weights_of(const Workload& work) {
    const TransformerShape& model = work.model;
    BlockWeights at{};
    std::int64_t next = 0;
    const auto take = [&](std::int64_t elements) {
        const std::int64_t place = next;
        next += elements;
        return place;
    };
    at.input_norm = take(model.hidden);
    at.query = take(model.query_width() * model.hidden);
    at.key = take(model.kv_width() * model.hidden);
    at.value = take(model.kv_width() * model.hidden);
    at.output = take(model.hidden * model.query_width());
    at.residual_norm = take(model.hidden);
    at.query_norm = take(model.qk_norm_width(model.heads));
    at.key_norm = take(model.qk_norm_width(model.kv_heads));
    at.gate = take(model.ffn * model.hidden);
    at.up = take(model.ffn * model.hidden);
    at.down = take(model.hidden * model.ffn);
    at.size = next;
    return at;
}

/// Of what stands around the blocks. A tied head is the embedding.
struct RootWeights {
    std::int64_t embedding, final_norm, head, size;
};
inline RootWeights root_weights_of(const Workload& work) {
    const std::int64_t table = work.model.vocabulary * work.model.hidden;
    const std::int64_t behind = table + work.model.hidden;
    if (work.model.tied_embeddings) return {0, table, 0, behind};
    return {0, table, behind, behind + table};
}

}  // namespace headroom
