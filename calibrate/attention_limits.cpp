// SPDX-License-Identifier: Apache-2.0
#include "calibrate/attention_limits.hpp"

#include <fmt/format.h>

#include "models/cudnn_limits.hpp"
#include "models/error.hpp"

namespace headroom {
namespace {

Error refused(const std::string& what, const std::string& hint) {
    return Error(what, "cuDNN attention", hint, ExitCode::failure);
}

}  // namespace

void require_attention(const Attention& shape) {
    if (shape.head_dim % 8 != 0 || shape.head_dim > 256 || shape.head_dim < 8) {
        throw refused(fmt::format("head_dim {} is not a multiple of 8 up to 256", shape.head_dim), "");
    }
    if (shape.kv_heads < 1 || shape.heads % shape.kv_heads != 0) {
        throw refused(fmt::format("{} query heads do not divide over {} key heads", shape.heads, shape.kv_heads), "");
    }
    if (!shape.backward) return;
    const BackwardElements elements = backward_elements(shape);
    if (elements.queries > cudnn_most_query_elements) {
        throw refused(fmt::format("backward over {} queries of {} heads has more than 2^31 elements, where dQ and dK "
                                  "come out wrong",
                                  shape.query_len, shape.heads),
                      "use more GPUs, or the stages of upipe");
    }
    if (elements.keys > cudnn_most_key_elements) {
        throw refused(
            fmt::format("backward over {} keys and {} query heads has more than 2^32 elements, where dV comes "
                        "out wrong",
                        shape.key_len, shape.heads),
            "use more GPUs, or shorter chunks of keys");
    }
}

void require_aligned(std::initializer_list<const void*> addresses) {
    for (const void* address : addresses) {
        if (reinterpret_cast<std::uintptr_t>(address) % 16 != 0) {
            throw refused("an operand does not begin at a multiple of 16 bytes", "this is a bug: please report it");
        }
    }
}

std::string cudnn_version_text(std::int64_t version) {
    return fmt::format("{}.{}.{}", version / 10000, version / 100 % 100, version % 100);
}

void require_cudnn(std::int64_t version) {
    if (version >= oldest_cudnn) return;
    throw refused(
        fmt::format("cuDNN {} is too old, {} is needed", cudnn_version_text(version), cudnn_version_text(oldest_cudnn)),
        "install a newer cuDNN 9, or put one first in LD_LIBRARY_PATH");
}

std::int64_t plan_workspace_bytes(const Attention& shape) {
    constexpr std::int64_t tile_counter = 256;
    if (!shape.backward || shape.heads == shape.kv_heads) return tile_counter;
    // dK and dV of every query head, bf16, before they are summed over the heads of one key head.
    return tile_counter + std::int64_t{2} * shape.batch * shape.heads * shape.key_len * 2 * shape.head_dim;
}

std::int64_t caller_workspace_bytes(const Attention& shape) {
    if (!shape.backward) return 0;
    return std::int64_t{4} * shape.batch * shape.heads * shape.query_len * (shape.head_dim + 1);
}

}  // namespace headroom
