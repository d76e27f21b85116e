// SPDX-License-Identifier: Apache-2.0
// Host memory of one process: pinned blocks as PyTorch caches them, and pageable memory.
#pragma once

#include <array>
#include <cstdint>

#include "models/schedule.hpp"
#include "models/units.hpp"

namespace headroom {

/// PyTorch's pinned memory comes from a cache that rounds every request up to a power of two, keeps a freed block for
/// later requests of that rounded size and neither splits it nor gives it back (CachingHostAllocator, 2.9 to 2.11,
/// default settings). Pageable memory is malloc's: exact bytes, gone when freed.
class HostAllocator {
 public:
    /// `place` is one of the two on the host. Zero bytes take no memory.
    void allocate(Place place, Bytes bytes);
    /// With the place and the bytes that were allocated.
    void release(Place place, Bytes bytes);

    Bytes pinned() const { return {pinned_}; }  ///< live and cached; never shrinks, so also its own peak
    Bytes pageable() const { return {pageable_}; }
    Bytes peak_pageable() const { return {peak_pageable_}; }
    Bytes peak() const { return {peak_}; }  ///< of pinned and pageable together

 private:
    std::array<std::int64_t, 64> cached_blocks_{};  ///< free blocks of 2^index bytes
    std::int64_t pinned_ = 0, pageable_ = 0, peak_pageable_ = 0, peak_ = 0;
};

}  // namespace headroom
