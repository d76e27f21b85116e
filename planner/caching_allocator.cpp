// SPDX-License-Identifier: Apache-2.0
// The rules are those of the DeviceCachingAllocator in PyTorch's c10/cuda/CUDACachingAllocator.cpp.
#include "planner/caching_allocator.hpp"

#include <algorithm>
#include <cassert>

namespace headroom {
namespace {

constexpr std::int64_t granule = 512;                    ///< every request is a multiple of this
constexpr std::int64_t largest_small_request = mebi;     ///< up to here a request goes to the small pool
constexpr std::int64_t small_segment = 2 * mebi;         ///< also the handle of small expandable segments
constexpr std::int64_t large_segment = 20 * mebi;        ///< also the handle of large expandable segments
constexpr std::int64_t own_segment_from = 10 * mebi;     ///< requests this large get a segment of their own ...
constexpr std::int64_t own_segment_multiple = 2 * mebi;  ///< ... rounded to this
constexpr std::int64_t smallest_large_rest = mebi;       ///< in the large pool only a rest above this is split off

/// PyTorch reserves 9/8 of the device for each expandable segment and starts another when that is used up. Without
/// end there is never a second one; it takes a heavily unmapped segment at the limit to tell the difference.
constexpr std::int64_t address_space = (std::int64_t{1} << 62) / large_segment * large_segment;

std::int64_t segment_bytes(std::int64_t size) {
    if (size <= largest_small_request) return small_segment;
    if (size < own_segment_from) return large_segment;
    return round_up(size, own_segment_multiple);
}

/// Bytes of [address, address + size) that lie in handles wholly inside it.
template <std::int64_t handle>
std::int64_t whole_handle_bytes(std::int64_t address, std::int64_t size) {
    const std::int64_t begin = divide_round_up(address, handle), end = (address + size) / handle;
    return std::max<std::int64_t>(end - begin, 0) * handle;
}

}  // namespace

std::int64_t CachingAllocator::handle_bytes(std::uint8_t pool) {
    return is_small(pool) ? small_segment : large_segment;
}

void CachingAllocator::reset(const Options& options) {
    options_ = options;
    blocks_.clear();
    unused_.clear();
    for (Pool& pool : pools_) {
        pool.free.clear();
        pool.unmapped.clear();
    }
    next_segment_address_ = 0;
    allocated_ = reserved_ = unreturnable_ = 0;
    peak_allocated_ = peak_reserved_ = unreturnable_at_peak_ = peak_held_ = 0;
    out_of_memory_ = false;
}

CachingAllocator::BlockId CachingAllocator::allocate(Stream stream, Bytes bytes) {
    if (bytes.value <= 0) return no_block;
    const std::int64_t size = round_up(bytes.value, granule);
    const auto pool = static_cast<std::uint8_t>(2 * static_cast<int>(stream) + (size > largest_small_request));

    BlockId id = take_best_fit(pool, size);
    if (id == no_block) id = take_from_driver(pool, size);
    if (id == no_block) {
        empty_cache();
        id = take_from_driver(pool, size);
    }
    if (id == no_block) {
        out_of_memory_ = true;
        return no_block;
    }

    // A rest that is not split off stays part of the block and counts as allocated, as in PyTorch's own statistics.
    const std::int64_t rest = blocks_[id].size - size;
    if (is_small(pool) || options_.expandable_segments ? rest >= granule : rest > smallest_large_rest)
        add_free(cut(id, size));
    blocks_[id].state = State::live;

    allocated_ += blocks_[id].size;
    if (allocated_ > peak_allocated_) {
        peak_allocated_ = allocated_;
        unreturnable_at_peak_ = unreturnable_;
    } else if (allocated_ == peak_allocated_) {
        unreturnable_at_peak_ = std::max(unreturnable_at_peak_, unreturnable_);
    }
    // A release never raises this sum: what it adds to the stuck bytes it takes from the allocated ones.
    peak_held_ = std::max(peak_held_, allocated_ + unreturnable_);
    return id;
}

void CachingAllocator::release(BlockId id) {
    if (id == no_block) return;
    assert(id < blocks_.size() && blocks_[id].state == State::live);
    allocated_ -= blocks_[id].size;
    absorb_neighbours(id, State::free);
    blocks_[id].state = State::free;
    add_free(id);
}

void CachingAllocator::empty_cache() {
    for (Pool& pool : pools_) {
        // Unmapping cuts free blocks into new ones, so walk over a copy.
        scratch_.clear();
        for (const FreeBlock& free : pool.free) scratch_.push_back(free.block);
        for (const BlockId id : scratch_) {
            if (options_.expandable_segments) {
                unmap(id);
            } else if (blocks_[id].previous == no_block && blocks_[id].next == no_block) {
                remove_free(id);
                reserved_ -= blocks_[id].size;
                unused_.push_back(id);
            }
        }
    }
}

/// Takes a block of at least `size` out of the free ones.
CachingAllocator::BlockId CachingAllocator::take_best_fit(std::uint8_t pool, std::int64_t size) {
    std::vector<FreeBlock>& free = pools_[pool].free;
    auto best = std::lower_bound(free.begin(), free.end(), size,
                                 [](const FreeBlock& block, std::int64_t wanted) { return block.size < wanted; });
    if (best == free.end()) return no_block;
    if (options_.expandable_segments) {
        // A block that can still grow counts with the address space behind it, so that the end of a segment is kept
        // for what nothing else can hold.
        for (auto next = best + 1; next != free.end(); ++next) {
            if (size_with_room_to_grow(next->block) >= size_with_room_to_grow(best->block)) break;
            best = next;
        }
    }
    const BlockId id = best->block;
    unreturnable_ -= stuck_bytes(blocks_[id]);
    free.erase(best);
    return id;
}

CachingAllocator::BlockId CachingAllocator::take_from_driver(std::uint8_t pool, std::int64_t size) {
    if (options_.expandable_segments) return grow_expandable_segment(pool, size);
    const std::int64_t bytes = segment_bytes(size);
    if (!reserve(bytes)) return no_block;
    // The driver's addresses are not known; ours rise, so among equals the oldest segment is the best fit.
    const BlockId id = new_block({next_segment_address_, bytes, no_block, no_block, pool, State::free});
    next_segment_address_ += bytes;
    return id;
}

CachingAllocator::BlockId CachingAllocator::grow_expandable_segment(std::uint8_t pool, std::int64_t size) {
    BlockId id = find_address_space(pool, size);
    if (blocks_[id].state == State::unmapped && !map(id, std::min(blocks_[id].size, size))) return no_block;
    while (blocks_[id].size < size) {
        // A free block with unmapped address space behind it. What was mapped before a failure stays mapped.
        const BlockId next = blocks_[id].next;
        if (!map(next, std::min(blocks_[next].size, size - blocks_[id].size))) return no_block;
        id = next;  // it has absorbed the free block before it
    }
    remove_free(id);
    return id;
}

/// The lowest address from which `size` bytes are free or unmapped, starting at unmapped space or at the free block
/// right before it.
CachingAllocator::BlockId CachingAllocator::find_address_space(std::uint8_t pool, std::int64_t size) {
    for (const BlockId unmapped : pools_[pool].unmapped) {
        const BlockId previous = blocks_[unmapped].previous;
        const BlockId start = previous != no_block && blocks_[previous].state == State::free ? previous : unmapped;
        std::int64_t room = 0;
        for (BlockId id = start; room < size && id != no_block && blocks_[id].state != State::live;
             id = blocks_[id].next)
            room += blocks_[id].size;
        if (room >= size) return start;
    }
    const BlockId segment = new_block({0, address_space, no_block, no_block, pool, State::unmapped});
    add_unmapped(segment);
    return segment;
}

/// Backs the front of an unmapped block with handles, all of them or none, and makes it a free block.
bool CachingAllocator::map(BlockId id, std::int64_t size) {
    const std::int64_t bytes = round_up(size, handle_bytes(blocks_[id].pool));
    if (!reserve(bytes)) return false;
    remove_unmapped(id);
    if (bytes < blocks_[id].size) add_unmapped(cut(id, bytes));
    absorb_neighbours(id, State::free);
    blocks_[id].state = State::free;
    add_free(id);
    return true;
}

/// Gives back the handles that lie wholly inside a free block; what sticks out on either side stays free.
void CachingAllocator::unmap(BlockId id) {
    const Block block = blocks_[id];
    const std::int64_t handle = handle_bytes(block.pool);
    const std::int64_t begin = round_up(block.address, handle);
    const std::int64_t end = (block.address + block.size) / handle * handle;
    if (begin >= end) return;
    remove_free(id);
    if (block.address < begin) {
        const BlockId front = id;
        id = cut(front, begin - block.address);
        add_free(front);
    }
    if (end < block.address + block.size) add_free(cut(id, end - begin));
    absorb_neighbours(id, State::unmapped);
    blocks_[id].state = State::unmapped;
    add_unmapped(id);
    reserved_ -= end - begin;
}

/// Cuts a block that is in no list down to `size`. The rest, its new neighbour, has the same state and is in no list.
CachingAllocator::BlockId CachingAllocator::cut(BlockId id, std::int64_t size) {
    Block rest = blocks_[id];
    rest.address += size;
    rest.size -= size;
    blocks_[id].size = size;
    const BlockId added = new_block(rest);
    blocks_[added].previous = id;
    if (rest.next != no_block) blocks_[rest.next].previous = added;
    blocks_[id].next = added;
    return added;
}

/// Neighbours in `state` leave their list and become part of the block.
void CachingAllocator::absorb_neighbours(BlockId id, State state) {
    for (const BlockId neighbour : {blocks_[id].previous, blocks_[id].next}) {
        if (neighbour == no_block || blocks_[neighbour].state != state) continue;
        if (state == State::unmapped) {
            remove_unmapped(neighbour);
        } else {
            remove_free(neighbour);
        }
        absorb(id, neighbour);
    }
}

void CachingAllocator::absorb(BlockId id, BlockId neighbour) {
    Block& block = blocks_[id];
    const Block& other = blocks_[neighbour];
    if (block.previous == neighbour) {
        block.address = other.address;
        block.previous = other.previous;
        if (other.previous != no_block) blocks_[other.previous].next = id;
    } else {
        block.next = other.next;
        if (other.next != no_block) blocks_[other.next].previous = id;
    }
    block.size += other.size;
    unused_.push_back(neighbour);
}

bool CachingAllocator::reserve(std::int64_t bytes) {
    if (options_.capacity.value != 0 && bytes > options_.capacity.value - reserved_) return false;
    reserved_ += bytes;
    peak_reserved_ = std::max(peak_reserved_, reserved_);
    return true;
}

/// Bytes of a free block that empty_cache cannot give back: all of them where a neighbour of the same segment lives
/// (free neighbours would have been merged), or what does not fill a handle of an expandable segment.
std::int64_t CachingAllocator::stuck_bytes(const Block& block) const {
    if (!options_.expandable_segments) return block.previous == no_block && block.next == no_block ? 0 : block.size;
    return block.size - (is_small(block.pool) ? whole_handle_bytes<small_segment>(block.address, block.size)
                                              : whole_handle_bytes<large_segment>(block.address, block.size));
}

std::int64_t CachingAllocator::size_with_room_to_grow(BlockId id) const {
    const Block& block = blocks_[id];
    const bool grows = block.next != no_block && blocks_[block.next].state == State::unmapped;
    return block.size + (grows ? blocks_[block.next].size : 0);
}

CachingAllocator::BlockId CachingAllocator::new_block(const Block& block) {
    if (unused_.empty()) {
        blocks_.push_back(block);
        return static_cast<BlockId>(blocks_.size() - 1);
    }
    const BlockId id = unused_.back();
    unused_.pop_back();
    blocks_[id] = block;
    return id;
}

void CachingAllocator::add_free(BlockId id) {
    const Block& block = blocks_[id];
    unreturnable_ += stuck_bytes(block);
    std::vector<FreeBlock>& free = pools_[block.pool].free;
    const FreeBlock entry{block.size, block.address, id};
    free.insert(std::lower_bound(free.begin(), free.end(), entry), entry);
}

void CachingAllocator::remove_free(BlockId id) {
    const Block& block = blocks_[id];
    unreturnable_ -= stuck_bytes(block);
    std::vector<FreeBlock>& free = pools_[block.pool].free;
    free.erase(std::lower_bound(free.begin(), free.end(), FreeBlock{block.size, block.address, id}));
}

void CachingAllocator::add_unmapped(BlockId id) {
    std::vector<BlockId>& unmapped = pools_[blocks_[id].pool].unmapped;
    const auto before = [&](BlockId a, BlockId b) { return blocks_[a].address < blocks_[b].address; };
    unmapped.insert(std::lower_bound(unmapped.begin(), unmapped.end(), id, before), id);
}

void CachingAllocator::remove_unmapped(BlockId id) {
    std::vector<BlockId>& unmapped = pools_[blocks_[id].pool].unmapped;
    unmapped.erase(std::find(unmapped.begin(), unmapped.end(), id));
}

}  // namespace headroom
