// SPDX-License-Identifier: Apache-2.0
// What PyTorch's CUDA caching allocator (2.9 to 2.11, default settings) makes of a sequence of allocations and frees
// on one device: the bytes it takes from the driver, and how many of them it could give back.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "models/schedule.hpp"
#include "models/units.hpp"

namespace headroom {

/// Host program order is the only order: a block is free the moment it is released, whatever the streams still do.
/// A released block serves only later requests on the stream that allocated it, and only of its pool (small or large).
class CachingAllocator {
 public:
    struct Options {
        bool expandable_segments = true;
        Bytes capacity;  ///< what the driver can hand out; 0 = unlimited
    };

    /// Valid from allocate to release; then the number is used again.
    using BlockId = std::uint32_t;
    static constexpr BlockId no_block = 0xffffffff;

    explicit CachingAllocator(const Options& options) { reset(options); }

    /// A new process: forgets blocks and peaks, keeps the storage it has grown.
    void reset(const Options& options);

    /// `no_block` for zero bytes, which take no memory in PyTorch either, and when out of memory.
    BlockId allocate(Stream stream, Bytes bytes);
    /// `no_block` is ignored.
    void release(BlockId block);

    /// torch.cuda.empty_cache: gives back whole free segments, or whole free handles of expandable ones.
    void empty_cache();

    Bytes allocated() const { return {allocated_}; }  ///< bytes of live blocks, rounding included
    Bytes reserved() const { return {reserved_}; }    ///< bytes taken from the driver
    /// Reserved but not allocated, and stuck: empty_cache would leave exactly allocated + unreturnable.
    Bytes unreturnable() const { return {unreturnable_}; }

    Bytes peak_allocated() const { return {peak_allocated_}; }
    Bytes peak_reserved() const { return {peak_reserved_}; }
    /// The largest unreturnable at an instant when allocated stood at its peak.
    Bytes unreturnable_at_peak() const { return {unreturnable_at_peak_}; }
    /// The largest allocated + unreturnable of any instant: what remains of peak_reserved if the cache were emptied
    /// after every event. It may lie at another instant than the peak of allocated.
    Bytes peak_held() const { return {peak_held_}; }

    /// Whether a request failed even after the cache was emptied. Stays set; later requests are still tried.
    bool out_of_memory() const { return out_of_memory_; }

 private:
    enum class State : std::uint8_t { live, free, unmapped };

    struct Block {
        std::int64_t address, size;  ///< bytes
        BlockId previous, next;      ///< neighbours in the segment, or no_block
        std::uint8_t pool;
        State state;
    };

    /// The order of best fit: smallest first, then lowest address.
    struct FreeBlock {
        std::int64_t size, address;
        BlockId block;
        bool operator<(const FreeBlock& other) const {
            return size != other.size ? size < other.size : address < other.address;
        }
    };

    /// The blocks of one stream and size class. A plan keeps tens of free blocks, so sorted vectors beat trees.
    struct Pool {
        std::vector<FreeBlock> free;
        std::vector<BlockId> unmapped;  ///< by address; only with expandable segments
    };

    static bool is_small(std::uint8_t pool) { return pool % 2 == 0; }
    static std::int64_t handle_bytes(std::uint8_t pool);

    BlockId take_best_fit(std::uint8_t pool, std::int64_t size);
    BlockId take_from_driver(std::uint8_t pool, std::int64_t size);
    BlockId grow_expandable_segment(std::uint8_t pool, std::int64_t size);
    BlockId find_address_space(std::uint8_t pool, std::int64_t size);
    bool map(BlockId block, std::int64_t size);
    void unmap(BlockId block);
    BlockId cut(BlockId block, std::int64_t size);
    void absorb(BlockId block, BlockId neighbour);
    void absorb_neighbours(BlockId block, State state);

    bool reserve(std::int64_t bytes);
    std::int64_t stuck_bytes(const Block& block) const;
    std::int64_t size_with_room_to_grow(BlockId block) const;

    BlockId new_block(const Block& block);
    void add_free(BlockId block);
    void remove_free(BlockId block);
    void add_unmapped(BlockId block);
    void remove_unmapped(BlockId block);

    Options options_;
    std::vector<Block> blocks_;
    std::vector<BlockId> unused_;  ///< entries of blocks_ that can be used again
    std::array<Pool, 2 * stream_count> pools_;
    std::vector<BlockId> scratch_;
    std::int64_t next_segment_address_ = 0;

    std::int64_t allocated_ = 0, reserved_ = 0, unreturnable_ = 0;
    std::int64_t peak_allocated_ = 0, peak_reserved_ = 0, unreturnable_at_peak_ = 0, peak_held_ = 0;
    bool out_of_memory_ = false;
};

}  // namespace headroom
