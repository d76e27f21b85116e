// SPDX-License-Identifier: Apache-2.0
// Claims about host memory: pinned blocks are rounded, cached and kept; pageable bytes are exact and go back.
#include "planner/host_allocator.hpp"

#include <doctest/doctest.h>

#include <initializer_list>
#include <utility>

namespace headroom {

TEST_CASE("host: pinned requests take the next power of two") {
    for (const auto& [request, taken] : {std::pair<std::int64_t, std::int64_t>{1, 1},
                                         {2, 2},
                                         {3, 4},
                                         {512 * mebi, 512 * mebi},
                                         {512 * mebi + 1, 1024 * mebi},
                                         {640 * mebi, 1024 * mebi},
                                         {mebi - 1, mebi}}) {
        HostAllocator host;
        host.allocate(Place::host_pinned, {request});
        CHECK(host.pinned() == Bytes{taken});
        CHECK(host.pageable() == Bytes{0});
    }
}

TEST_CASE("host: a freed pinned block serves the requests of its rounded size only, and is never given back") {
    HostAllocator host;
    host.allocate(Place::host_pinned, {600 * mebi});  // 1024 MiB
    host.release(Place::host_pinned, {600 * mebi});
    CHECK(host.pinned() == Bytes{1024 * mebi});
    host.allocate(Place::host_pinned, {1000 * mebi});  // the same block
    CHECK(host.pinned() == Bytes{1024 * mebi});
    host.allocate(Place::host_pinned, {600 * mebi});  // it is in use: another
    CHECK(host.pinned() == Bytes{2048 * mebi});
    host.release(Place::host_pinned, {600 * mebi});
    host.allocate(Place::host_pinned, {512 * mebi});  // no splitting: 512 more although 1024 lie idle
    CHECK(host.pinned() == Bytes{2560 * mebi});
    CHECK(host.peak() == Bytes{2560 * mebi});
}

TEST_CASE("host: pageable bytes are exact and go back at once") {
    HostAllocator host;
    host.allocate(Place::host_pageable, {1001});
    host.allocate(Place::host_pageable, {2002});
    CHECK(host.pageable() == Bytes{3003});
    host.release(Place::host_pageable, {1001});
    host.allocate(Place::host_pageable, {500});
    CHECK(host.pageable() == Bytes{2502});
    CHECK(host.peak_pageable() == Bytes{3003});
    CHECK(host.pinned() == Bytes{0});
}

TEST_CASE("host: the common peak counts pinned and pageable bytes of one instant") {
    HostAllocator host;
    host.allocate(Place::host_pageable, {1000});
    host.release(Place::host_pageable, {1000});
    host.allocate(Place::host_pinned, {700});    // 1024
    CHECK(host.peak() == Bytes{1024});           // not 1000 + 1024
    host.release(Place::host_pinned, {700});     // stays
    host.allocate(Place::host_pageable, {100});  // beside the cached 1024
    CHECK(host.peak() == Bytes{1124});
    CHECK(host.peak_pageable() == Bytes{1000});
}

TEST_CASE("host: zero bytes take no memory") {
    HostAllocator host;
    host.allocate(Place::host_pinned, {0});
    host.release(Place::host_pinned, {0});
    host.allocate(Place::host_pinned, {1});  // the release left no block behind
    CHECK(host.pinned() == Bytes{1});
}

}  // namespace headroom
