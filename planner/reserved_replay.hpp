// SPDX-License-Identifier: Apache-2.0
// Replays a schedule through the model of PyTorch's caching allocator, for what a run reserves.
#pragma once

#include "models/schedule.hpp"
#include "planner/caching_allocator.hpp"

namespace headroom {

struct ReservedMemory {
    Bytes peak_reserved;   ///< by a run with room to spare
    Bytes peak_held;       ///< most bytes that could not be given back: live blocks and what sticks to them
    Bytes peak_allocated;  ///< as the allocator counts it
};

/// Keeps its storage from one schedule to the next.
class ReservedReplay {
 public:
    /// Exact for steps of up to some 10^5 events. In longer ones (FPDT with many chunks) the repetitions of a block
    /// beyond the first two and the last allocate only what outlives them: by then the cache has seen every size.
    ReservedMemory run(const Schedule& schedule, bool expandable_segments);
    ReservedMemory run_expanded(const Schedule& schedule, bool expandable_segments);

 private:
    ReservedMemory replay(const Schedule& schedule, bool expandable_segments, bool expand);
    void start(const Schedule& schedule, bool expandable_segments);
    void play(const Schedule& schedule, std::uint32_t first, std::uint32_t last, bool expand);
    void play_lasting(const Schedule& schedule, const Segment& segment, std::uint32_t times);
    void allocate(const Event& event);
    void release(TensorId id);

    static constexpr std::uint32_t nothing = ~std::uint32_t{0};
    /// Blocks of one TensorId, youngest first; `below` is the index of the next in `entries_`.
    struct Entry {
        CachingAllocator::BlockId block;
        std::uint32_t below;
    };
    CachingAllocator allocator_{CachingAllocator::Options{}};
    std::vector<std::uint32_t> top_;  ///< by TensorId
    std::vector<Entry> entries_;
    std::uint32_t unused_ = nothing;  ///< head of the list of free entries
    std::vector<std::int32_t> net_;   ///< scratch of play_lasting
    std::vector<const Event*> lasting_;
};

}  // namespace headroom
