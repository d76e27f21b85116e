// SPDX-License-Identifier: Apache-2.0
// Where cuDNN's attention backward computes the wrong thing without an error; measured with 9.14 and 9.19 on H200.
#pragma once

#include "models/schedule.hpp"

namespace headroom {

inline constexpr std::int64_t cudnn_most_query_elements = std::int64_t{1} << 31;  ///< beyond it dQ and dK are wrong
inline constexpr std::int64_t cudnn_most_key_elements = std::int64_t{1} << 32;    ///< beyond it dV is wrong

/// What these limits count: query elements, and those of the keys over all query heads.
struct BackwardElements {
    std::int64_t queries, keys;
};
constexpr BackwardElements backward_elements(const Attention& shape) {
    const std::int64_t row = std::int64_t{shape.batch} * shape.heads * shape.head_dim;
    return {row * shape.query_len, row * shape.key_len};
}

}  // namespace headroom
