// SPDX-License-Identifier: Apache-2.0
// Parameters of models that are counted but not planned: experts, latent attention, blocks that differ.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "configs/hf_families.hpp"
#include "configs/hf_fields.hpp"
#include "models/transformer.hpp"

namespace headroom {

struct Counts {
    std::int64_t total = 0;
    std::int64_t active = 0;  ///< of one token
};

/// The experts of the sparse layers; the other layers have one MLP of dense_width.
struct Experts {
    std::int64_t count = 0;
    std::int64_t top_k = 0;
    std::int64_t width = 0;
    std::int64_t shared_width = 0;  ///< all shared experts together
    std::int64_t dense_width = 0;
    std::int64_t sparse_layers = 0;
    bool shared_gate = false;  ///< one more output row for the shared expert
    bool router_bias = false;  ///< one value per expert
    bool biases = false;       ///< of the experts' matrices
    bool sinks = false;        ///< one learned logit per query head
};

/// Multi-head latent attention: low-rank queries, keys and values.
struct LatentAttention {
    std::int64_t query_rank = 0;  ///< 0: queries are projected directly
    std::int64_t kv_rank = 0;
    std::int64_t plain_dim = 0;   ///< of a query or key head, without rotary embedding
    std::int64_t rotary_dim = 0;  ///< with it; shared by all key heads
    std::int64_t value_dim = 0;
};

/// How many experts the config has; nothing for a dense model.
std::optional<std::int64_t> expert_count(HfFields& fields);
/// The field that says so in configs of this family.
std::string_view expert_count_name(const HfFamily& family);
Experts read_experts(HfFields& fields, const HfFamily& family, std::int64_t layers);
std::optional<LatentAttention> read_latent_attention(HfFields& fields);

Counts count_sparse(const Transformer& model, const std::optional<Experts>& experts,
                    const std::optional<LatentAttention>& latent);

/// Nemotron-NAS: `block_configs` gives every block its own attention and MLP, or none. `summary` says how they differ.
Counts count_blocks(HfFields& fields, std::string& summary);

/// Llama 3.2 Vision, text side: some of the layers attend to image tokens.
Counts count_with_cross_attention(const Transformer& model, std::int64_t cross_layers);

}  // namespace headroom
