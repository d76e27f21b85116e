// SPDX-License-Identifier: Apache-2.0
// Which kernel stands for an event of a schedule when it is really executed.
#pragma once

#include <cstdint>

#include "models/schedule.hpp"

namespace headroom {

/// Own kernels, by what they do to how many bytes.
enum class RealKernel : std::uint8_t {
    copy,           ///< the driver's device-to-device copy
    cast_up,        ///< bf16 to fp32
    cast_down,      ///< fp32 to bf16
    add,            ///< a + b, bf16
    merge,          ///< partial attention into an fp32 sum
    mixed_add,      ///< fp32 += bf16
    rotary,         ///< in place
    norm_forward,   ///< rows of `columns`
    norm_backward,  ///< rows of `columns`
    swap_axes,      ///< rows of head_dim elements between two orders
    move,           ///< reads and writes as many bytes as the event says, for all that has no kernel here
};

/// One of the event's launches.
struct MemoryLaunch {
    RealKernel kernel;
    std::int64_t elements;       ///< of the widest operand; 0 for copy and move
    std::int64_t read, written;  ///< bytes the event counts for one launch
};

/// The launches of a memory_bound event; all `count` are alike but for a remainder, which is left out.
MemoryLaunch real_kernel(const Event& event);
/// Bytes that `work` moves when it is executed.
std::int64_t bytes_moved(const MemoryLaunch& work);

/// A linear layer's three products have their operands in different orders.
enum class ProductRole : std::uint8_t {
    forward,          ///< Y[m,n] = X[m,k] W[n,k]^T
    input_gradient,   ///< dX[m,n] = dY[m,k] W[k,n]
    weight_gradient,  ///< dW[m,n] = dY[k,m]^T X[k,n]
};
ProductRole product_role(const Event& event);

}  // namespace headroom
