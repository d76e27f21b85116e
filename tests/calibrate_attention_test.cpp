// SPDX-License-Identifier: Apache-2.0
// What cuDNN's attention gets wrong without saying so is refused or split before it is asked.
#include <doctest/doctest.h>

#include "calibrate/attention_limits.hpp"
#include "models/error.hpp"
#include "models/units.hpp"

using namespace headroom;

namespace {

Attention backward_of(std::int64_t tokens, std::int32_t heads, std::int32_t kv_heads) {
    return {tokens, tokens, heads, kv_heads, 128, 1, true, true};
}

}  // namespace

TEST_CASE("backward is split so that no call has more than 2^31 query elements") {
    CHECK(head_slices(backward_of(mebi, 16, 16)).size() == 1);  // 2^31 exactly is right
    const auto slices = head_slices(backward_of(mebi, 17, 17));
    REQUIRE(slices.size() == 2);
    CHECK(slices[0].heads == 16);
    CHECK(slices[1].first == 16);
    CHECK(slices[1].heads == 1);
    // Llama 3 8B at 1M: groups of four query heads stay together with their key head.
    const auto llama = head_slices(backward_of(mebi, 32, 8));
    REQUIRE(llama.size() == 2);
    CHECK(llama[0].heads == 16);
    CHECK(llama[0].kv_heads == 4);
    CHECK(llama[1].first == 16);
    CHECK(llama[1].first_kv == 4);
    Attention forward = backward_of(mebi, 32, 8);
    forward.backward = false;
    CHECK(head_slices(forward).size() == 1);
}

TEST_CASE("long keys split backward too, below 2^32 elements over all heads") {
    Attention shape = backward_of(32 * kibi, 64, 8);
    shape.causal = false;
    shape.key_len = 4 * mebi;  // 2^29 elements for a head
    for (const HeadSlice& slice : head_slices(shape)) {
        CHECK(std::int64_t{slice.heads} * shape.key_len * shape.head_dim <= std::int64_t{1} << 32);
    }
}

TEST_CASE("shapes without an engine, and a single group that is too long, are refused by name") {
    CHECK_THROWS_AS(head_slices(backward_of(4 * mebi, 8, 1)), Error);
    CHECK_THROWS_AS(head_slices(backward_of(1024, 6, 4)), Error);
    Attention odd = backward_of(1024, 4, 4);
    odd.head_dim = 100;
    CHECK_THROWS_AS(head_slices(odd), Error);
}

TEST_CASE("addresses that are no multiple of 16 are refused") {
    alignas(16) const char memory[32] = {};
    CHECK_NOTHROW(require_aligned({memory, memory + 16, nullptr}));
    CHECK_THROWS_AS(require_aligned({memory, memory + 8}), Error);
    CHECK_THROWS_AS(require_aligned({memory + 2}), Error);
}

TEST_CASE("versions and workspaces") {
    CHECK_NOTHROW(require_cudnn(91400));
    CHECK_THROWS_WITH_AS(require_cudnn(91002), "cuDNN 9.10.2 is too old, 9.14.0 is needed", Error);
    // cudnn notes: 2.0 GiB for 32/8 heads at 128K; 256 bytes forward or without grouped heads
    CHECK(plan_workspace_bytes(backward_of(131072, 32, 8)) == 256 + 2 * gibi);
    CHECK(plan_workspace_bytes(backward_of(131072, 8, 8)) == 256);
    CHECK(caller_workspace_bytes(backward_of(8192, 4, 4)) == 4LL * 4 * 8192 * 128 + 4LL * 4 * 8192);
}
