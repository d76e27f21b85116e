// SPDX-License-Identifier: Apache-2.0
// What cuDNN's attention gets wrong without saying so is refused before it is asked.
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

TEST_CASE("backward of more than 2^31 query elements is refused: dQ and dK would be wrong in every head") {
    CHECK_NOTHROW(require_attention(backward_of(mebi, 16, 16)));  // 2^31 exactly is right
    CHECK_THROWS_WITH_AS(require_attention(backward_of(mebi, 17, 17)), doctest::Contains("more than 2^31 elements"),
                         Error);
    Attention forward = backward_of(mebi, 32, 8);
    forward.backward = false;
    CHECK_NOTHROW(require_attention(forward));
}

TEST_CASE("keys of more than 2^32 elements over all query heads are refused, too") {
    Attention shape = backward_of(32 * kibi, 64, 8);
    shape.causal = false;
    shape.key_len = 512 * kibi;  // 2^26 elements for a head
    CHECK_NOTHROW(require_attention(shape));
    shape.key_len = 513 * kibi;
    CHECK_THROWS_WITH_AS(require_attention(shape), doctest::Contains("more than 2^32 elements"), Error);
}

TEST_CASE("shapes without an engine are refused by name") {
    CHECK_THROWS_AS(require_attention(backward_of(1024, 6, 4)), Error);
    Attention odd = backward_of(1024, 4, 4);
    odd.head_dim = 100;
    CHECK_THROWS_AS(require_attention(odd), Error);
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
