// SPDX-License-Identifier: Apache-2.0
// The floating-point operations that a training step needs by the model alone, as MFU counts them: no recomputation,
// whatever the code runs.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

#include "models/transformer.hpp"
#include "models/units.hpp"

namespace headroom {

/// How much of the S x S square of attention scores counts.
enum class AttentionCount {
    causal,  ///< the half that the mask leaves: 6*L*H*d*S per token
    full,    ///< all of it: 12*L*H*d*S per token, twice what a causal kernel computes
};
inline constexpr std::array<std::string_view, 2> attention_count_names{"causal", "full"};
constexpr std::string_view to_string(AttentionCount v) { return attention_count_names[static_cast<std::size_t>(v)]; }

struct ModelFlops {
    double weights = 0;    ///< 6 per weight and token; embedding table and norm vectors multiply nothing, the head does
    double attention = 0;  ///< scores and weighted values, forward and backward
    double total() const { return weights + attention; }
};

/// Of one step over `batch` sequences of `context` tokens.
ModelFlops model_flops(const Transformer& model, Tokens context, std::int64_t batch, AttentionCount count);

}  // namespace headroom
