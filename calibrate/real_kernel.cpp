// SPDX-License-Identifier: Apache-2.0
#include "calibrate/real_kernel.hpp"

#include <algorithm>
#include <string_view>

namespace headroom {
namespace {

bool contains(std::string_view text, std::string_view part) { return text.find(part) != std::string_view::npos; }

RealKernel eager_kernel(std::string_view name) {
    if (contains(name, "from fp32")) return RealKernel::cast_down;
    if (contains(name, "to fp32")) return RealKernel::cast_up;
    if (contains(name, "merge partial attention")) return RealKernel::merge;
    if (contains(name, "rotary embedding")) return RealKernel::rotary;
    if (contains(name, "add residual")) return RealKernel::add;
    return RealKernel::move;
}

RealKernel kernel_of(const Event& event) {
    const MemoryBound& op = event.memory_bound;
    switch (op.kernel) {
        case MemoryKernel::copy:
            if (op.read == op.written) return RealKernel::copy;
            return op.written == 2 * op.read ? RealKernel::cast_up : RealKernel::move;
        case MemoryKernel::eager:
            return eager_kernel(event.name);
        case MemoryKernel::norm_forward:
            return RealKernel::norm_forward;
        case MemoryKernel::norm_backward:
            return RealKernel::norm_backward;
        case MemoryKernel::mixed_add:
            return RealKernel::mixed_add;
        case MemoryKernel::transpose:
            return RealKernel::swap_axes;
        case MemoryKernel::optimizer:
            break;
    }
    return RealKernel::move;
}

/// Bytes a kernel moves for each element of its widest operand.
std::int64_t bytes_per_element(RealKernel kernel) {
    switch (kernel) {
        case RealKernel::cast_up:
        case RealKernel::cast_down:
        case RealKernel::add:
        case RealKernel::norm_backward:
            return 6;
        case RealKernel::merge:
        case RealKernel::mixed_add:
            return 10;
        case RealKernel::rotary:
        case RealKernel::norm_forward:
        case RealKernel::swap_axes:
            return 4;
        case RealKernel::copy:
        case RealKernel::move:
            break;
    }
    return 0;
}

}  // namespace

MemoryLaunch real_kernel(const Event& event) {
    const MemoryBound& op = event.memory_bound;
    const std::int64_t launches = std::max(1, op.count);
    MemoryLaunch work{kernel_of(event), 0, op.read / launches, op.written / launches};
    if (const std::int64_t width = bytes_per_element(work.kernel); width > 0) {
        work.elements = (work.read + work.written) / width;
    }
    return work;
}

std::int64_t bytes_moved(const MemoryLaunch& work) {
    const std::int64_t width = bytes_per_element(work.kernel);
    return width > 0 ? width * work.elements : work.read + work.written;
}

ProductRole product_role(const Event& event) {
    const std::string_view name = event.name;
    if (contains(name, "input gradient")) return ProductRole::input_gradient;
    if (contains(name, "weight gradient")) return ProductRole::weight_gradient;
    return ProductRole::forward;
}

}  // namespace headroom
