// SPDX-License-Identifier: Apache-2.0
// The products of a linear layer y[rows][out] = x[rows][in] W^T, W [out][in], all packed.
#pragma once

#include "models/computation.hpp"

namespace headroom {

constexpr Product linear_forward(std::int64_t rows, std::int64_t out, std::int64_t in, View x, View weight, View y) {
    return {rows, out, in, 1, {x, in, 0, false}, {weight, in, 0, true}, {y, out, 0, false}};
}

/// dx[rows][in] = dy[rows][out] W
constexpr Product linear_input_gradient(std::int64_t rows, std::int64_t out, std::int64_t in, View dy, View weight,
                                        View dx, bool adds = false) {
    return {rows, in, out, 1, {dy, out, 0, false}, {weight, in, 0, false}, {dx, in, 0, false}, adds};
}

/// dW[out][in] = dy^T x
constexpr Product linear_weight_gradient(std::int64_t rows, std::int64_t out, std::int64_t in, View dy, View x, View dw,
                                         bool adds = false) {
    return {out, in, rows, 1, {dy, out, 0, true}, {x, in, 0, false}, {dw, in, 0, false}, adds};
}

}  // namespace headroom
