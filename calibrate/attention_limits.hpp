// SPDX-License-Identifier: Apache-2.0
// What cuDNN's fused attention silently gets wrong, kept out before it is asked. Measured with 9.14 and 9.19 on H200.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <string>

#include "models/schedule.hpp"

namespace headroom {

/// Below it, bf16 attention is broken or its plans differ.
inline constexpr std::int64_t oldest_cudnn = 91400;

/// Throws Error for a shape the library refuses, and for one it computes wrongly without an error: backward where the
/// query tensor has more than 2^31 elements (dQ, dK), or the keys of all query heads more than 2^32 (dV). A slice of
/// the heads inside such a tensor is as wrong: it is the offset of the last row that counts.
void require_attention(const Attention& shape);

/// Throws Error unless every address is a multiple of 16: on others Q and K give garbage, and the dQ accumulator an
/// error that ends the context.
void require_aligned(std::initializer_list<const void*> addresses);

/// Throws Error for a version that is too old. `version` as cudnnGetVersion() gives it.
void require_cudnn(std::int64_t version);
/// "9.19.0", from 91900.
std::string cudnn_version_text(std::int64_t version);

/// Bytes of a plan's workspace, and of what the caller holds beside it: the fp32 dQ accumulator and delta.
std::int64_t plan_workspace_bytes(const Attention& shape);
std::int64_t caller_workspace_bytes(const Attention& shape);

/// The Hopper engine keeps its tiles in more than this much shared memory; the Ampere-style ones, at half the rate, in
/// less than half of it. Known for head_dim 128.
inline constexpr std::int64_t hopper_shared_memory = 200'000;

}  // namespace headroom
