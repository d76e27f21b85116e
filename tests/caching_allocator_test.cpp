// SPDX-License-Identifier: Apache-2.0
// Claims about the model of PyTorch's CUDA caching allocator, each number worked by hand, and a comparison with a slow
// and plain one.
#include "planner/caching_allocator.hpp"

#include <doctest/doctest.h>

#include <iterator>
#include <map>
#include <random>
#include <utility>
#include <vector>

#include "tests/slow_allocator.hpp"

namespace headroom {
namespace {

constexpr Stream compute = Stream::compute, ring = Stream::ring;
constexpr auto no_block = CachingAllocator::no_block;
using Options = CachingAllocator::Options;

constexpr Bytes mib(std::int64_t n) { return {n * mebi}; }
constexpr Options segments(Bytes capacity = {}) { return {false, capacity}; }
constexpr Options expandable(Bytes capacity = {}) { return {true, capacity}; }

/// Allocated and reserved after one request in a fresh process.
std::pair<Bytes, Bytes> after_one(const Options& options, Bytes request) {
    CachingAllocator allocator(options);
    allocator.allocate(compute, request);
    return {allocator.allocated(), allocator.reserved()};
}

using Pair = std::pair<Bytes, Bytes>;

}  // namespace

TEST_CASE("allocator: requests are rounded up to 512 bytes, zero bytes take nothing") {
    CHECK(after_one(segments(), {1}).first == Bytes{512});
    CHECK(after_one(segments(), {512}).first == Bytes{512});
    CHECK(after_one(segments(), {513}).first == Bytes{1024});
    CachingAllocator allocator(segments());
    CHECK(allocator.allocate(compute, {0}) == no_block);
    allocator.release(no_block);
    CHECK(allocator.reserved() == Bytes{0});
    CHECK_FALSE(allocator.out_of_memory());
}

TEST_CASE("allocator: what one request takes from the driver") {
    // Up to 1 MiB: a 2 MiB segment. Below 10 MiB: 20 MiB. From 10 MiB: the request rounded up to 2 MiB.
    CHECK(after_one(segments(), mib(1)) == Pair{mib(1), mib(2)});
    CHECK(after_one(segments(), mib(1) + Bytes{1}) == Pair{mib(1) + Bytes{512}, mib(20)});
    CHECK(after_one(segments(), mib(10) - Bytes{512}) == Pair{mib(10) - Bytes{512}, mib(20)});
    CHECK(after_one(segments(), mib(10)) == Pair{mib(10), mib(10)});
    CHECK(after_one(segments(), mib(10) + Bytes{512}) == Pair{mib(10) + Bytes{512}, mib(12)});
    // Expandable: whole handles, of 2 MiB in the small pool and of 20 MiB in the large one.
    CHECK(after_one(expandable(), mib(1)) == Pair{mib(1), mib(2)});
    CHECK(after_one(expandable(), mib(1) + Bytes{1}) == Pair{mib(1) + Bytes{512}, mib(20)});
    CHECK(after_one(expandable(), mib(10)) == Pair{mib(10), mib(20)});
    CHECK(after_one(expandable(), mib(21)) == Pair{mib(21), mib(40)});
}

TEST_CASE("allocator: what is left of a block is split off when large enough") {
    // Large pool: 12 MiB segments. A rest of 1 MiB stays with the block, one of 1 MiB + 512 is split off.
    CHECK(after_one(segments(), mib(11)) == Pair{mib(12), mib(12)});
    CHECK(after_one(segments(), mib(11) - Bytes{512}) == Pair{mib(11) - Bytes{512}, mib(12)});
    // Expandable segments always split.
    CHECK(after_one(expandable(), mib(20) - Bytes{512}) == Pair{mib(20) - Bytes{512}, mib(20)});

    // Small pool: 1 MiB and 1 MiB - 512 leave 512 B of a 2 MiB segment, enough for one more byte.
    CachingAllocator allocator(segments());
    allocator.allocate(compute, mib(1));
    allocator.allocate(compute, mib(1) - Bytes{512});
    CHECK(allocator.allocated() == mib(2) - Bytes{512});
    allocator.allocate(compute, {1});
    CHECK(allocator.allocated() == mib(2));
    CHECK(allocator.reserved() == mib(2));
    allocator.allocate(compute, {1});
    CHECK(allocator.reserved() == mib(4));
}

TEST_CASE("allocator: a small request never uses a large block, nor the other way round") {
    CachingAllocator allocator(segments());
    allocator.release(allocator.allocate(compute, mib(30)));
    allocator.release(allocator.allocate(compute, mib(1)));
    CHECK(allocator.reserved() == mib(32));
    // 1 MiB + 1 B would fit the 2 MiB segment, but comes out of the 30 MiB one: 30 MiB - (1 MiB + 512 B) are stuck.
    allocator.allocate(compute, mib(1) + Bytes{1});
    CHECK(allocator.reserved() == mib(32));
    CHECK(allocator.unreturnable() == mib(29) - Bytes{512});
}

TEST_CASE("allocator: the smallest free block that fits is taken") {
    CachingAllocator allocator(segments());
    const auto a = allocator.allocate(compute, mib(64)), b = allocator.allocate(compute, mib(32)),
               c = allocator.allocate(compute, mib(48));
    for (const auto block : {a, b, c}) allocator.release(block);
    allocator.allocate(compute, mib(30));  // from the 32: 2 MiB stay behind beside a live block
    CHECK(allocator.unreturnable() == mib(2));
    allocator.allocate(compute, mib(40));  // from the 48: 8 MiB more
    CHECK(allocator.unreturnable() == mib(10));
    CHECK(allocator.reserved() == mib(144));
}

TEST_CASE("allocator: among equal free blocks the lowest address is taken") {
    CachingAllocator allocator(expandable());
    std::vector<CachingAllocator::BlockId> blocks;
    for (int i = 0; i < 5; ++i) blocks.push_back(allocator.allocate(compute, mib(20)));
    allocator.release(blocks[1]);
    allocator.release(blocks[3]);
    allocator.allocate(compute, mib(20));  // at 20, so 60..80 stays free ...
    allocator.release(blocks[4]);          // ... and grows to 60..100
    allocator.allocate(compute, mib(40));
    CHECK(allocator.reserved() == mib(100));
}

TEST_CASE("allocator: free neighbours of one segment merge, segments never do") {
    CachingAllocator allocator(segments());
    const auto a = allocator.allocate(compute, mib(6)), b = allocator.allocate(compute, mib(6)),
               c = allocator.allocate(compute, mib(6));
    CHECK(allocator.reserved() == mib(20));
    allocator.release(a);
    allocator.release(c);  // merges with the last 2 MiB; 6 and 8 MiB around b
    CHECK(allocator.unreturnable() == mib(14));
    allocator.release(b);
    CHECK(allocator.unreturnable() == mib(0));
    allocator.allocate(compute, mib(19));  // rest 1 MiB: not split, so the whole segment
    CHECK(allocator.allocated() == mib(20));
    CHECK(allocator.reserved() == mib(20));

    // Two freed blocks of 100 MiB cannot hold 200 MiB in two segments; in one expandable segment they can.
    for (const auto& [options, reserved] : {std::pair{segments(), mib(400)}, std::pair{expandable(), mib(200)}}) {
        CachingAllocator growing(options);
        const auto first = growing.allocate(compute, mib(100)), second = growing.allocate(compute, mib(100));
        growing.release(first);
        growing.release(second);
        growing.allocate(compute, mib(200));
        CHECK(growing.reserved() == reserved);
        CHECK(growing.peak_reserved() == reserved);
        CHECK(growing.peak_allocated() == mib(200));
    }
}

TEST_CASE("allocator: a stream does not use what another stream freed") {
    for (const auto& options : {segments(), expandable()}) {
        CachingAllocator allocator(options);
        allocator.release(allocator.allocate(compute, mib(40)));
        const auto on_ring = allocator.allocate(ring, mib(40));
        CHECK(allocator.reserved() == mib(80));
        CHECK(allocator.peak_allocated() == mib(40));
        allocator.release(on_ring);
        allocator.allocate(compute, mib(40));
        allocator.allocate(ring, mib(40));
        CHECK(allocator.reserved() == mib(80));
    }
}

TEST_CASE("allocator: the free end of an expandable segment is extended by what is missing") {
    CachingAllocator allocator(expandable());
    allocator.allocate(compute, mib(50));  // 3 handles, 10 MiB free at the end
    CHECK(allocator.reserved() == mib(60));
    allocator.allocate(compute, mib(20));  // 10 MiB missing: 1 handle
    CHECK(allocator.reserved() == mib(80));
    CHECK(allocator.allocated() == mib(70));
}

TEST_CASE("allocator: best fit keeps the end that can grow for last") {
    CachingAllocator allocator(expandable());
    const auto hole = allocator.allocate(compute, mib(30));
    allocator.allocate(compute, mib(5));
    const auto end = allocator.allocate(compute, mib(25));
    CHECK(allocator.reserved() == mib(60));
    allocator.release(hole);
    allocator.release(end);
    allocator.allocate(compute, mib(25));  // the end is an exact fit, the hole of 30 is taken
    allocator.allocate(compute, mib(60));  // 25 at the end and 35 more: 2 handles (3 had the end been taken)
    CHECK(allocator.reserved() == mib(100));
}

TEST_CASE("allocator: unmapped holes are filled again before the segment grows") {
    CachingAllocator allocator(expandable());
    const auto a = allocator.allocate(compute, mib(20)), b = allocator.allocate(compute, mib(20)),
               c = allocator.allocate(compute, mib(20));
    allocator.release(b);
    allocator.empty_cache();
    CHECK(allocator.reserved() == mib(40));
    const auto too_large = allocator.allocate(compute, mib(30));  // not in the hole: 2 handles at the end
    CHECK(allocator.reserved() == mib(80));
    const auto again = allocator.allocate(compute, mib(15));  // 10 MiB are free at the end, so the hole it is
    CHECK(allocator.reserved() == mib(100));
    for (const auto block : {a, c, too_large, again}) allocator.release(block);
    allocator.allocate(compute, mib(100));  // all of it has merged
    CHECK(allocator.reserved() == mib(100));
}

TEST_CASE("allocator: unreturnable bytes are those that an emptied cache keeps") {
    // 64 MiB freed, then 4 MiB of it used. One segment: 60 MiB stuck. Four handles of 20: only the first is stuck.
    for (const auto& [options, stuck] : {std::pair{segments(), mib(60)}, std::pair{expandable(), mib(16)}}) {
        CachingAllocator allocator(options);
        allocator.release(allocator.allocate(compute, mib(64)));
        CHECK(allocator.unreturnable() == mib(0));
        allocator.allocate(compute, mib(4));
        CHECK(allocator.unreturnable() == stuck);
        allocator.empty_cache();
        CHECK(allocator.reserved() == mib(4) + stuck);
        CHECK(allocator.unreturnable() == stuck);
        CHECK(allocator.peak_reserved() == (options.expandable_segments ? mib(80) : mib(64)));
    }
    // A block over the border of two handles holds both: 15 MiB before it and 15 MiB behind.
    CachingAllocator allocator(expandable());
    const auto front = allocator.allocate(compute, mib(15));
    allocator.allocate(compute, mib(10));
    CHECK(allocator.unreturnable() == mib(15));
    allocator.release(front);
    CHECK(allocator.unreturnable() == mib(30));
}

TEST_CASE("allocator: stuck bytes at the peak, and the most ever held") {
    CachingAllocator allocator(segments());
    allocator.release(allocator.allocate(compute, mib(60)));  // peak of allocated, nothing stuck
    allocator.allocate(compute, mib(4));                      // 56 stuck
    const auto on_ring = allocator.allocate(ring, mib(50));
    CHECK(allocator.peak_allocated() == mib(60));
    CHECK(allocator.unreturnable_at_peak() == mib(0));
    CHECK(allocator.peak_held() == mib(110));  // 4 + 50 + 56
    allocator.release(on_ring);
    allocator.allocate(ring, mib(56));  // a second segment; 60 allocated again, now with 56 stuck
    CHECK(allocator.peak_allocated() == mib(60));
    CHECK(allocator.unreturnable_at_peak() == mib(56));
    CHECK(allocator.peak_held() == mib(116));
    CHECK(allocator.reserved() == mib(166));
}

TEST_CASE("allocator: the cache is emptied before a request fails") {
    CachingAllocator allocator(segments(mib(100)));
    allocator.release(allocator.allocate(compute, mib(60)));
    CHECK(allocator.allocate(compute, mib(80)) != no_block);  // 60 + 80 > 100: the 60 go back first
    CHECK(allocator.reserved() == mib(80));
    CHECK(allocator.peak_reserved() == mib(80));
    CHECK_FALSE(allocator.out_of_memory());
    CHECK(allocator.allocate(compute, mib(20)) != no_block);  // exactly full
    CHECK(allocator.allocate(compute, mib(2)) == no_block);
    CHECK(allocator.out_of_memory());
    CHECK(allocator.allocated() == mib(100));
    allocator.reset(segments(mib(100)));
    CHECK_FALSE(allocator.out_of_memory());
    CHECK(allocator.peak_reserved() == mib(0));
}

TEST_CASE("allocator: a partly used segment stays, of an expandable one the whole free handles go back") {
    for (const auto& options : {segments(mib(100)), expandable(mib(100))}) {
        CachingAllocator allocator(options);
        allocator.release(allocator.allocate(compute, mib(60)));
        allocator.allocate(compute, mib(4));
        allocator.allocate(ring, mib(80));  // beside 60 it has no room, beside one handle of 20 it has
        CHECK(allocator.out_of_memory() == !options.expandable_segments);
        CHECK(allocator.reserved() == (options.expandable_segments ? mib(100) : mib(60)));
    }
}

TEST_CASE("allocator: random traces end where a slow, plain allocator ends, event by event") {
    int failures = 0, emptied_in_need = 0;
    for (const auto& options :
         {segments(), expandable(), segments(mib(300)), expandable(mib(300)), segments(mib(90)), expandable(mib(90))}) {
        for (unsigned seed = 1; seed <= 12; ++seed) {
            std::mt19937 random(seed);
            const auto below = [&](unsigned n) { return static_cast<std::int64_t>(random() % n); };
            CachingAllocator fast(options);
            SlowAllocator slow(options);
            std::map<int, CachingAllocator::BlockId> live;
            for (int event = 0; event < 800; ++event) {
                const std::int64_t dice = below(100);
                if (dice == 0) {
                    fast.empty_cache();
                    slow.empty_cache();
                } else if (live.empty() || dice < 52) {
                    // Small, about the limits of 1, 10 and 20 MiB, and anything up to 50 MiB.
                    std::int64_t bytes = 1 + below(1 << 20);
                    if (dice % 4 == 1) bytes = std::int64_t{below(3) == 0 ? 1 : below(2) == 0 ? 10 : 20} * mebi;
                    if (dice % 4 == 1) bytes += 512 * (below(5) - 2) + below(2);
                    if (dice % 4 >= 2) bytes = mebi + below(50u << 20);
                    const auto stream = static_cast<Stream>(below(3));
                    const Bytes before = fast.reserved();
                    const auto block = fast.allocate(stream, {bytes});
                    const bool placed = slow.allocate(event, stream, bytes);
                    REQUIRE(placed == (block != no_block));
                    if (placed) live[event] = block;
                    failures += !placed;
                    emptied_in_need += placed && fast.reserved() < before;
                } else {
                    auto one = live.begin();
                    std::advance(one, below(static_cast<unsigned>(live.size())));
                    fast.release(one->second);
                    slow.release(one->first);
                    live.erase(one);
                }
                REQUIRE(fast.allocated().value == slow.allocated());
                REQUIRE(fast.reserved().value == slow.reserved());
                REQUIRE(fast.unreturnable().value == slow.unreturnable());
                REQUIRE(fast.peak_allocated().value == slow.peak_allocated);
                REQUIRE(fast.peak_reserved().value == slow.peak_reserved);
                REQUIRE(fast.peak_held().value == slow.peak_held);
                REQUIRE(fast.peak_reserved() >= fast.peak_held());
                REQUIRE(fast.peak_held() >= fast.peak_allocated() + fast.unreturnable_at_peak());
                if (options.capacity.value != 0) REQUIRE(fast.peak_reserved() <= options.capacity);
            }
        }
    }
    // The traces reach what they are here for.
    CHECK(failures > 100);
    CHECK(emptied_in_need > 100);
}

}  // namespace headroom
