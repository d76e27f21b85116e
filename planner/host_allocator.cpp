// SPDX-License-Identifier: Apache-2.0
#include "planner/host_allocator.hpp"

#include <algorithm>
#include <bit>
#include <cassert>

namespace headroom {
namespace {

/// The exponent of the smallest power of two that holds `bytes`.
std::size_t size_class(std::int64_t bytes) {
    return static_cast<std::size_t>(std::bit_width(static_cast<std::uint64_t>(bytes - 1)));
}

}  // namespace

void HostAllocator::allocate(Place place, Bytes bytes) {
    assert(place != Place::device);
    if (bytes.value <= 0) return;
    if (place == Place::host_pageable) {
        pageable_ += bytes.value;
        peak_pageable_ = std::max(peak_pageable_, pageable_);
    } else if (std::int64_t& cached = cached_blocks_[size_class(bytes.value)]; cached > 0) {
        --cached;
    } else {
        pinned_ += std::int64_t{1} << size_class(bytes.value);
    }
    peak_ = std::max(peak_, pinned_ + pageable_);
}

void HostAllocator::release(Place place, Bytes bytes) {
    assert(place != Place::device);
    if (bytes.value <= 0) return;
    if (place == Place::host_pageable) {
        pageable_ -= bytes.value;
    } else {
        ++cached_blocks_[size_class(bytes.value)];
    }
}

}  // namespace headroom
