// SPDX-License-Identifier: Apache-2.0
// The block peaks that were derived from the shipped codes by hand and by running their Python functions come out of
// the replay to the byte. The block is the first one: its input stays on the device, so it is counted once, as the
// forms do.
//
// Symbols: X hidden state, Aq all query heads, Akv K or V, u one stage of heads, l all log-sum-exp, C_r ring degree.
#include <doctest/doctest.h>

#include <algorithm>

#include "tests/scenario.hpp"

namespace headroom {
namespace {

constexpr std::int64_t million = 1024 * 1024;

Bytes block(const Workload& work, Phase phase) { return Replayed(work).peak("first block", phase).activations; }

struct Symbols {
    Bytes x, q, k, l;
    explicit Symbols(const Workload& work) : x(work.hidden), q(work.query), k(work.key), l(work.lse) {}
};

Bytes largest(std::initializer_list<Bytes> bytes) { return std::max(bytes); }

}  // namespace

TEST_CASE("UPipe on one node: forward, recompute and backward of a block") {
    for (const char* name : {"llama3-8b", "upipe-qwen3-32b"}) {
        CAPTURE(name);
        const Workload work = Scenario(Method::upipe, 3 * million).with_model(name).workload();
        const Symbols s(work);
        const Bytes u = work.query * 8 / work.model.heads;  // U = 8 heads of a stage
        CHECK(block(work, Phase::forward).value ==
              largest({5 * s.x, 2 * s.x + s.q + 7 * u + s.l, 2 * s.x + 2 * s.q}).value);
        CHECK(block(work, Phase::recompute).value == (7 * s.x + 2 * s.q + s.l).value);
        // Where attention's backward is the larger one; for 8 heads of 64 the tiled MLP is (6X + 2Aq + l and its tile).
        const Bytes attention = 4 * s.x + 2 * s.q + s.l + 12 * u;
        const Bytes mlp = 6 * s.x + 2 * s.q + s.l;
        CHECK(block(work, Phase::backward).value >= largest({attention, mlp}).value);
        if (attention > mlp + s.x / 2) CHECK(block(work, Phase::backward).value == attention.value);
    }
}

TEST_CASE("UPipe across two nodes passes Q around a ring of two") {
    for (const char* name : {"llama3-8b", "upipe-qwen3-32b"}) {
        CAPTURE(name);
        const Scenario scenario = Scenario(Method::upipe, 3 * million).with_model(name).with_nodes(2);
        const Workload later = scenario.workload(RingRole::later);
        const Workload first = scenario.workload(RingRole::first);
        REQUIRE(later.recipe.ring == 2);
        const Symbols s(later);
        const Bytes u = later.query * 8 / later.model.heads;
        const Bytes others = largest({5 * s.x, 2 * s.x + 2 * s.q});
        CHECK(block(first, Phase::forward).value == largest({others, 2 * s.x + s.q + 11 * u + s.l}).value);
        CHECK(block(later, Phase::forward).value == largest({others, 2 * s.x + s.q + 17 * u / 2 + s.l}).value);
        CHECK(block(later, Phase::backward).value == (4 * s.x + 2 * s.q + s.l + 25 * u).value);
        CHECK(block(first, Phase::backward).value == (4 * s.x + 2 * s.q + s.l + 25 * u).value);
    }
}

TEST_CASE("Ulysses: rotary decides forward, the final casts decide backward") {
    for (const char* name : {"llama3-8b", "upipe-qwen3-32b"}) {
        CAPTURE(name);
        const Workload work = Scenario(Method::ulysses, 3 * million).with_model(name).workload();
        const Symbols s(work);
        CHECK(block(work, Phase::forward).value == (2 * s.x + 6 * s.q + 7 * s.k).value);
        CHECK(block(work, Phase::recompute).value ==
              largest({3 * s.x + 6 * s.q + 7 * s.k, 7 * s.x + 3 * s.q + 2 * s.k + s.l}).value);
        CHECK(block(work, Phase::backward).value == (3 * s.x + 7 * s.q + 14 * s.k + 3 * s.l / 2).value);
    }
}

TEST_CASE("Ulysses of DeepSpeed ALST: a copy more of each exchanged tensor, and reentrant checkpoints") {
    Scenario scenario(Method::ulysses, 4 * million);
    scenario.settings.implementation = Implementation::alst;
    scenario.settings.attention_kernel = AttentionKernel::fa3;
    const Workload work = scenario.workload();
    const Symbols s(work);
    // The caller's q, k, v while the output goes back: it, its send copy and the receive buffer.
    CHECK(block(work, Phase::forward).value == (2 * s.x + 4 * s.q + 2 * s.k + s.l).value);
    CHECK(block(work, Phase::recompute).value == (7 * s.x + 3 * s.q + 2 * s.k + s.l).value);
    // Block input, output, the gradients of output and residual, the normed input; then the kernel: q, k, v, o, their
    // gradients, an fp32 dQ, and fp32 dK and dV of grouped heads.
    CHECK(block(work, Phase::backward).value == (5 * s.x + 6 * s.q + 8 * s.k + 3 * s.l).value);
    scenario.settings.checkpointing = Checkpointing::none;
    scenario.settings.offload_block_inputs = HostPlace::none;
    const Workload kept = scenario.workload();
    CHECK(Replayed(kept).peak("first block", Phase::backward).activations < block(work, Phase::backward));
}

TEST_CASE("USP 8 x 2: the two ring roles") {
    const Scenario scenario = Scenario(Method::usp, 3 * million).with_model("upipe-qwen3-32b").with_nodes(2);
    const Workload later = scenario.workload(RingRole::later);
    const Workload first = scenario.workload(RingRole::first);
    REQUIRE(later.recipe.ulysses == 8);
    REQUIRE(later.recipe.ring == 2);
    const Symbols s(later);
    CHECK(block(later, Phase::forward).value == (2 * s.x + 9 * s.q + 6 * s.k).value);
    CHECK(block(first, Phase::forward).value ==
          largest({2 * s.x + 13 * s.q / 2 + 6 * s.k, 2 * s.x + 6 * s.q + 7 * s.k}).value);
    CHECK(block(later, Phase::backward).value == (3 * s.x + 8 * s.q + 16 * s.k + 7 * s.l / 2).value);
    CHECK(block(first, Phase::backward).value == (3 * s.x + 7 * s.q + 18 * s.k + 5 * s.l / 2).value);
}

TEST_CASE("Ring attention: the two ring roles") {
    const Scenario scenario(Method::ring, 3 * million);
    const Workload later = scenario.workload(RingRole::later);
    const Workload first = scenario.workload(RingRole::first);
    const Symbols s(later);
    CHECK(block(later, Phase::forward).value == (2 * s.x + 8 * s.q + 6 * s.k).value);
    CHECK(block(first, Phase::forward).value == (2 * s.x + 6 * s.q + 7 * s.k).value);
    CHECK(block(later, Phase::backward).value == (3 * s.x + 8 * s.q + 18 * s.k + 7 * s.l / 2).value);
    CHECK(block(first, Phase::backward).value == (3 * s.x + 7 * s.q + 20 * s.k + 5 * s.l / 2).value);
}

TEST_CASE("Native context parallel: all-to-all and all-gather rotation") {
    for (const int nodes : {1, 2}) {
        Scenario scenario(Method::native, million);
        scenario.with_nodes(nodes);
        const std::int64_t ranks = 8 * nodes;
        const Workload gather = scenario.workload();
        const Symbols s(gather);
        CHECK(block(gather, Phase::forward).value == (2 * s.x + (12 + 2 * ranks) * s.q).value);
        CHECK(block(scenario.workload(RingRole::first), Phase::forward).value ==
              (2 * s.x + (10 + 2 * ranks) * s.q).value);
        CHECK(block(gather, Phase::backward).value == (3 * s.x + (28 + 2 * ranks) * s.q + 2 * s.l).value);

        scenario.settings.rotation = Rotation::all_to_all;
        CHECK(block(scenario.workload(), Phase::forward).value == (2 * s.x + 16 * s.q).value);
        CHECK(block(scenario.workload(RingRole::first), Phase::forward).value == (2 * s.x + 14 * s.q).value);
        CHECK(block(scenario.workload(), Phase::backward).value == (3 * s.x + 32 * s.q + 2 * s.l).value);
    }
}

TEST_CASE("FPDT with offload: block and host traffic") {
    for (const std::int64_t context : {million / 2, million, 3 * million}) {
        CAPTURE(context);
        const Workload work = Scenario(Method::fpdt, context).workload();
        const std::int64_t n = context / (64 * 1024);
        const Symbols s(work);
        const Bytes q = s.q / n, k = s.k / n, xc = s.x / n, lse = s.l / n;
        // Forward: 6X and an MLP tile, or 2X and the chunks with three log-sum-exp chunks, as measured on two H200.
        const Bytes chunks = largest({2 * s.q + 6 * q + 4 * k, (n - 1) * q + 12 * q + 4 * k}) + 3 * lse;
        const std::int64_t tile = 64 * 1024 / 8 / 2;
        const Bytes mlp{6 * s.x.value + 4 * 2 * tile * work.model.ffn};
        CHECK(block(work, Phase::forward).value == largest({2 * s.x + chunks, mlp}).value);
        const Bytes owned = largest({s.q + s.x + 2 * xc + 16 * q + 8 * k, s.q + 2 * s.x + xc + 4 * q});
        const Bytes backward = block(work, Phase::backward);
        CHECK(backward.value >= (4 * s.x + owned).value);
        CHECK(backward.value <= (4 * s.x + owned + lse).value);  // the form leaves chunk 0's log-sum-exp out

        Schedule schedule;
        build_training_step(work, schedule);
        std::int64_t to_host = 0, from_host = 0;  // of one forward, pinned
        std::int64_t back_to_host = 0, back_from_host = 0;
        for (const Segment& segment : schedule.segments) {
            if (std::string(segment.name) != "first block") continue;
            Phase phase = segment.phase;
            for_each_event(schedule, segment, [&](const Event& event) {
                if (event.kind == EventKind::phase) phase = static_cast<Phase>(event.id);
                if (event.kind != EventKind::copy || !event.copy.pinned) return;
                if (phase == Phase::forward) (event.copy.to_host ? to_host : from_host) += event.copy.bytes;
                if (phase == Phase::backward) (event.copy.to_host ? back_to_host : back_from_host) += event.copy.bytes;
            });
        }
        CHECK(to_host == (n * (xc + 2 * q + 2 * k) + s.l).value);
        CHECK(from_host == ((n * (n - 1) / 2 - 1) * 2 * k + 2 * q + 2 * k).value);
        CHECK(back_from_host == ((n * (n + 1) / 2 - 2) * 5 * q - (n - 1) * q + (n - 1) * 2 * k + n * xc).value);
        CHECK(back_to_host == (n * (n + 1) / 2 * 2 * q + n * q + 2 * q).value);
    }
}

}  // namespace headroom
