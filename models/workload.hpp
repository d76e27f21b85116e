// SPDX-License-Identifier: Apache-2.0
// The sizes a schedule is made of: one model under one recipe, as a single rank sees it.
#pragma once

#include "models/cluster.hpp"
#include "models/recipe.hpp"
#include "models/schedule.hpp"
#include "models/transformer.hpp"

namespace headroom {

/// Ring ranks hold different halves of the causal mask, so they hold different buffers.
enum class RingRole {
    first,  ///< ring rank 0: never meets an earlier block
    later,  ///< any other rank
};

/// Symbols as in the papers: S context, b batch, C = C_u*C_r, T = S/C tokens of a rank, D, H, Hkv, d, F, V, L.
struct Workload {
    TransformerShape model;
    Recipe recipe;
    ParameterCount parameters;
    RingRole role = RingRole::later;
    int ring_rank = -1;  ///< exact place in the ring, for a schedule that is to be run; -1: as `role` says
    int gpus = 1;        ///< ranks of the job
    int gpus_per_node = 8;
    bool loads_data = true;  ///< the next batch is tokenised in the training process while the GPU waits

    std::int64_t tokens = 0;    ///< b*T, rows of every activation of a rank
    std::int64_t element = 2;   ///< bytes of an activation element
    std::int64_t kv_heads = 0;  ///< KV heads that are exchanged: replicated up to the Ulysses degree when fewer
    std::int64_t group = 1;     ///< g = H / kv_heads

    Bytes hidden;  ///< X = element*b*T*D
    Bytes query;   ///< Aq = element*b*T*H*d, also the same tensor after an all-to-all
    Bytes key;     ///< Akv = element*b*T*Hkv*d, K or V
    Bytes lse;     ///< l = 4*b*T*H, log-sum-exp of all heads
    Bytes rotary;  ///< fc = 4*b*T*d, the complex rotary table of a rank

    std::int64_t global_tokens() const { return recipe.context.value; }         ///< S
    std::int64_t ring_tokens() const { return global_tokens() / recipe.ring; }  ///< S/C_r, per sequence
    /// After `round` steps of the ring this rank attends with its whole query to the first half of an earlier block;
    /// otherwise with the second half of its query to a whole later one.
    bool meets_earlier(std::int64_t round) const {
        return ring_rank < 0 ? role == RingRole::later : round <= ring_rank;
    }
    bool gated() const { return model.mlp == MlpKind::gated; }
    Bytes weights(std::int64_t count) const { return {element * count}; }  ///< in the compute format
    Bytes full_precision(std::int64_t count) const { return {4 * count}; }
};

Workload make_workload(const Transformer& model, const Cluster& cluster, const Recipe& recipe,
                       RingRole role = RingRole::later);

/// Tokens per tile of a tiled layer over `tokens` rows: automatic is ceil(rows/D) tiles (methods: TiledMLP), given
/// tokens are taken as they are, off is one tile.
struct Tiles {
    std::int64_t count = 1;
    std::int64_t tokens = 0;  ///< rows of the largest tile
    bool tiled = false;
};
Tiles tiles_of(const Tiling& tiling, std::int64_t tokens, std::int64_t hidden);

}  // namespace headroom
