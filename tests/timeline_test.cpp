// SPDX-License-Identifier: Apache-2.0
// Streams, waits and overlap, against examples worked on paper and against full expansion.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>

#include "simulator/step_time.hpp"
#include "tests/simple_calibration.hpp"

using namespace headroom;

namespace {

constexpr double ms = 1e-3;

struct Fixture {
    Schedule schedule;
    Builder builder{schedule};
    Calibration calibration = simple_calibration();
    Topology topology = pair_topology();
    Timeline timeline;
    AttentionKernel kernel = AttentionKernel::fa3;

    Fixture() { builder.segment("one", Phase::forward); }
    /// A kernel of that many milliseconds on the stream in use.
    void work(double length) { builder.memory_bound("work", MemoryKernel::eager, milliseconds(length), Bytes{0}); }
    /// 1 TFLOP/s: 4 * heads * q * k * d operations.
    void attention(double length) {
        builder.attention("attention", {1000, 1000, static_cast<std::int32_t>(length * 2.5), 1, 100, 1, false, false});
    }
    /// Two ranks: a send/recv moves all bytes, an all-to-all half of them.
    void ring(double length) {
        builder.collective("ring", Stream::ring, CollectiveKind::send_recv, CommGroup::ring, milliseconds(length),
                           false);
    }
    void gather(double length) {
        builder.collective("gather", Stream::all_gather, CollectiveKind::all_gather, CommGroup::sharding,
                           milliseconds(2 * length), false);
    }
    const Playback& play(Overlap overlap = Overlap::serialised) {
        builder.finish();
        PlayOptions options;
        options.ring_overlap = overlap;
        return timeline.play(schedule, calibration, topology, kernel, options);
    }
};

double exposed(const Playback& playback, CostClass cost_class) {
    return playback.exposed[static_cast<std::size_t>(cost_class)];
}
double total(const std::array<double, cost_class_count>& parts) {
    return std::accumulate(parts.begin(), parts.end(), 0.0);
}

}  // namespace

TEST_CASE("kernels of one stream add up") {
    Fixture f;
    f.work(3);
    f.work(4);
    CHECK(f.play().seconds == doctest::Approx(7 * ms));
}

TEST_CASE("a blocking collective stands between the kernels around it") {
    Fixture f;
    f.work(3);
    f.builder.collective("exchange", Stream::ulysses, CollectiveKind::all_to_all, CommGroup::ulysses, milliseconds(10),
                         true);
    f.work(4);
    const Playback& playback = f.play();
    CHECK(playback.seconds == doctest::Approx(12 * ms));  // 3 + 10/2 + 4
    CHECK(exposed(playback, CostClass::all_to_all) == doctest::Approx(5 * ms));
    CHECK(exposed(playback, CostClass::memory_bound) == doctest::Approx(7 * ms));
}

TEST_CASE("a copy on its own stream hides until somebody waits for it") {
    Fixture f;
    f.builder.copy("prefetch", Stream::host_to_device, {false, true, false, milliseconds(5).value});
    const SyncId arrived = f.builder.record(Stream::host_to_device);
    f.work(3);
    f.builder.wait(Stream::compute, arrived);
    f.work(4);
    const Playback& playback = f.play();
    CHECK(playback.seconds == doctest::Approx(9 * ms));  // max(3, 5) + 4
    CHECK(exposed(playback, CostClass::copy_pinned) == doctest::Approx(2 * ms));
    CHECK(playback.busy[static_cast<std::size_t>(CostClass::copy_pinned)] == doctest::Approx(5 * ms));
}

TEST_CASE("a wait binds to the record before it, not to a later one of the same number") {
    Fixture f;
    f.builder.copy("first", Stream::device_to_host, {true, true, false, milliseconds(2).value});
    const SyncId done = f.builder.record(Stream::device_to_host);
    f.builder.wait(Stream::compute, done);
    f.builder.copy("second", Stream::device_to_host, {true, true, false, milliseconds(50).value});
    f.work(1);
    const double end = f.play().seconds;
    CHECK(end == doctest::Approx(52 * ms));  // the second copy is the last to end, the kernel ran at 2
    CHECK(exposed(f.play(), CostClass::memory_bound) == doctest::Approx(1 * ms));
}

TEST_CASE("launches are hidden while the host is ahead and exposed after a host wait") {
    Fixture f;
    f.calibration.host.launch = exactly(1 * ms);
    f.calibration.host.after_wait = exactly(2 * ms);
    f.work(10);  // issued at 1, runs 1..11
    f.work(10);  // issued at 2, runs 11..21
    f.builder.host_wait("dry", Stream::compute);
    f.work(10);  // issued at 21 + 2, runs 23..33
    f.work(10);  // issued at 24
    const Playback& playback = f.play();
    CHECK(playback.seconds == doctest::Approx(43 * ms));
    CHECK(exposed(playback, CostClass::host_gap) == doctest::Approx(3 * ms));
}

TEST_CASE("after a host wait a transfer and the kernel behind it are launched one after the other") {
    Fixture f;
    f.calibration.host.after_wait = exactly(2 * ms);
    auto& pair = f.calibration.links[static_cast<std::size_t>(CollectiveKind::send_recv)];
    pair.alpha = exactly(1 * ms);
    pair.alpha_idle = exactly(4 * ms);
    f.work(10);
    f.builder.host_wait("dry", Stream::compute);
    f.ring(20);  // launched in 3, runs 13..34
    f.work(5);   // launched in 2 more, runs 15..20 less a quarter of the SMs
    const Playback& playback = f.play();
    CHECK(playback.seconds == doctest::Approx(34 * ms));
    CHECK(exposed(playback, CostClass::host_gap) == doctest::Approx(5 * ms));
}

TEST_CASE("a collective on an idle stream pays its whole start-up, behind a full queue only its own part") {
    Fixture f;
    for (auto& link : f.calibration.links) {
        link.alpha = exactly(1 * ms);
        link.alpha_idle = exactly(4 * ms);
    }
    SUBCASE("idle") {
        f.ring(10);
        CHECK(f.play().seconds == doctest::Approx(14 * ms));
    }
    SUBCASE("host ahead") {
        f.work(20);
        f.builder.wait(Stream::ring, f.builder.record(Stream::compute));
        f.ring(10);
        CHECK(f.play().seconds == doctest::Approx(31 * ms));
    }
}

TEST_CASE("many small kernels of one event cannot end before their launches") {
    Fixture f;
    f.calibration.host.launch = exactly(1 * ms);
    f.builder.memory_bound("tiles", MemoryKernel::eager, milliseconds(2), Bytes{0}, 10);
    const Playback& playback = f.play();
    CHECK(playback.seconds == doctest::Approx(10 * ms));
    CHECK(exposed(playback, CostClass::host_gap) == doctest::Approx(8 * ms));
}

TEST_CASE("a pageable copy holds the host back") {
    Fixture f;
    f.calibration.host.after_wait = exactly(1 * ms);
    f.builder.copy("save", Stream::device_to_host, {true, false, false, milliseconds(5).value});  // 500 MB/s: 10 ms
    f.work(3);
    CHECK(f.play().seconds == doctest::Approx(14 * ms));
}

TEST_CASE("host work delays what is launched after it and is named as the cause") {
    Fixture f;
    f.builder.host_work("tokenise", HostWork::Kind::tokenise, 7000);  // 1 us each
    f.work(3);
    const Playback& playback = f.play();
    CHECK(playback.seconds == doctest::Approx(10 * ms));
    CHECK(exposed(playback, CostClass::host_work) == doctest::Approx(7 * ms));
}

TEST_CASE("ring transfers beside attention: hidden is the longer of both, serialised the sum") {
    for (const bool transfer_first : {true, false}) {
        CAPTURE(transfer_first);
        Fixture f;
        if (transfer_first) f.ring(4);
        f.attention(10);
        if (!transfer_first) f.ring(4);
        f.builder.wait(Stream::compute, f.builder.record(Stream::ring));
        f.work(1);
        CHECK(f.play(Overlap::hidden).seconds == doctest::Approx(11 * ms));
        CHECK(f.play(Overlap::serialised).seconds == doctest::Approx(15 * ms));
        CHECK(exposed(f.play(Overlap::serialised), CostClass::ring) == doctest::Approx(4 * ms));
        CHECK(f.play(Overlap::hidden).ring_under_attention == doctest::Approx(4 * ms));
    }
}

TEST_CASE("other collectives take their share of the SMs while they run") {
    for (const bool gather_first : {true, false}) {
        CAPTURE(gather_first);
        Fixture f;
        if (gather_first) f.gather(4);
        f.work(10);
        if (!gather_first) f.gather(4);
        // A quarter of the SMs for 4 ms: 1 ms of work is left over.
        CHECK(f.play().seconds == doctest::Approx(11 * ms));
        CHECK(exposed(f.play(), CostClass::all_gather) == doctest::Approx(1 * ms));
    }
}

TEST_CASE("two collectives on one link carry their bytes one after another, across links side by side") {
    Fixture f;
    f.ring(4);
    f.gather(6);
    CHECK(f.play().seconds == doctest::Approx(10 * ms));

    f.topology.groups[static_cast<std::size_t>(CommGroup::ring)] = {2, 1};  // 10 times slower, over NICs
    CHECK(f.play().seconds == doctest::Approx(40 * ms));
}

TEST_CASE("the host runs at most one repetition ahead") {
    Fixture f;
    f.builder.segment("repeated", Phase::forward, 3);
    f.work(10);
    f.builder.copy("save", Stream::device_to_host, {true, true, false, milliseconds(1).value});
    const Playback& playback = f.play();
    CHECK(playback.seconds == doctest::Approx(30 * ms));

    std::vector<Slice> slices;
    PlayOptions options;
    options.slices = &slices;
    f.timeline.play(f.schedule, f.calibration, f.topology, f.kernel, options);
    REQUIRE(slices.size() == 6);
    CHECK(slices[5].start == doctest::Approx(10 * ms));  // third copy: while the second repetition computes
}

TEST_CASE("slices of one stream never overlap and end with the step") {
    Fixture f;
    f.gather(4);
    f.work(10);
    f.attention(5);
    f.ring(2);
    f.builder.finish();
    std::vector<Slice> slices;
    PlayOptions options;
    options.slices = &slices;
    const Playback& playback = f.timeline.play(f.schedule, f.calibration, f.topology, f.kernel, options);
    std::array<double, stream_count> end{};
    for (const Slice& slice : slices) {
        double& before = end[static_cast<std::size_t>(slice.stream)];
        CHECK(slice.start >= before - 1e-15);
        before = slice.start + slice.duration;
    }
    CHECK(*std::max_element(end.begin(), end.end()) == doctest::Approx(playback.seconds));
}

namespace {

/// A schedule of a few segments, some repeated, with every kind of event in an order drawn from `seed`.
void random_schedule(Schedule& schedule, unsigned seed, bool host_waits) {
    std::mt19937 random(seed);
    const auto draw = [&](int below) { return static_cast<int>(random() % static_cast<unsigned>(below)); };
    Builder builder(schedule);
    builder.segment("begin", Phase::setup);
    std::vector<SyncId> syncs;  // known before every segment, so that waits may reach back over repetitions
    for (std::size_t s = 0; s < stream_count; ++s) syncs.push_back(builder.record(static_cast<Stream>(s)));
    const int segments = 1 + draw(4);
    for (int segment = 0; segment < segments; ++segment) {
        builder.segment("segment", draw(3) ? Phase::forward : Phase::loss, 1 + draw(40));
        const int events = 1 + draw(25);
        for (int event = 0; event < events; ++event) {
            const Bytes bytes{1000 * (1 + draw(5000))};
            switch (draw(10)) {
                case 0:
                    builder.gemm("gemm", 100 * (1 + draw(50)), 1000, 1000, 1 + draw(3));
                    break;
                case 1:
                    builder.attention("attention",
                                      {1000 * (1 + draw(4)), 1000, 1 + draw(8), 1, 100, 1, draw(2) == 1, draw(2) == 1});
                    break;
                case 2:
                    builder.memory_bound("eager", MemoryKernel::eager, bytes, Bytes{0}, 1 + draw(4));
                    break;
                case 3:
                    builder.collective("exchange", Stream::ulysses, CollectiveKind::all_to_all, CommGroup::ulysses,
                                       bytes, true);
                    break;
                case 4:
                    builder.collective("ring", Stream::ring, CollectiveKind::send_recv, CommGroup::ring, bytes, false);
                    break;
                case 5:
                    builder.collective("gather", draw(2) ? Stream::all_gather : Stream::reduce_scatter,
                                       CollectiveKind::all_gather, CommGroup::sharding, bytes, false);
                    break;
                case 6:
                    builder.copy("copy", draw(2) ? Stream::host_to_device : Stream::device_to_host,
                                 {draw(2) == 1, draw(4) > 0 || !host_waits, draw(2) == 1, bytes.value});
                    break;
                case 7: {
                    const Stream stream = static_cast<Stream>(draw(static_cast<int>(stream_count)));
                    syncs.push_back(builder.record(stream));
                    break;
                }
                case 8:
                    builder.wait(static_cast<Stream>(draw(static_cast<int>(stream_count))),
                                 syncs[static_cast<std::size_t>(draw(static_cast<int>(syncs.size())))]);
                    break;
                case 9:
                    if (host_waits && draw(3) == 0) {
                        builder.host_wait("dry", static_cast<Stream>(draw(static_cast<int>(stream_count))));
                    } else if (draw(4) == 0) {
                        builder.host_work("think", HostWork::Kind::tokenise, draw(3000));
                    }
                    break;
            }
        }
    }
    builder.finish();
}

Calibration uneven_calibration() {
    Calibration calibration = simple_calibration();
    calibration.memory.kernel_start = exactly(3e-6);
    for (auto& link : calibration.links) {
        link.alpha = exactly(20e-6);
        link.alpha_idle = exactly(80e-6);
    }
    calibration.host.launch = exactly(6e-6);
    calibration.host.after_wait = exactly(75e-6);
    return calibration;
}

}  // namespace

TEST_CASE("skipping equal repetitions gives what playing all of them gives, and exposed time sums to the step") {
    const Calibration calibration = uneven_calibration();
    const Topology topology = pair_topology();
    Timeline timeline;
    Schedule schedule;
    std::uint64_t played = 0, expanded = 0;
    for (unsigned seed = 1; seed <= 2000; ++seed) {
        CAPTURE(seed);
        random_schedule(schedule, seed, seed % 3 == 0);
        for (const Overlap overlap : {Overlap::hidden, Overlap::serialised}) {
            PlayOptions options;
            options.ring_overlap = overlap;
            const Playback fast = timeline.play(schedule, calibration, topology, AttentionKernel::fa3, options);
            options.every_repetition = true;
            const Playback full = timeline.play(schedule, calibration, topology, AttentionKernel::fa3, options);
            played += fast.events_played;
            expanded += full.events_played;
            REQUIRE(std::abs(fast.seconds - full.seconds) <= 1e-9 * full.seconds);
            REQUIRE(std::abs(total(full.exposed) - full.seconds) <= 1e-9 * full.seconds);
            for (std::size_t c = 0; c < cost_class_count; ++c) {
                REQUIRE(std::abs(fast.exposed[c] - full.exposed[c]) <= 1e-9 * full.seconds);
                REQUIRE(std::abs(fast.busy[c] - full.busy[c]) <= 1e-9 * (full.busy[c] + full.seconds));
            }
        }
    }
    // The skip has to happen, or the comparison says nothing.
    CHECK(played < expanded / 2);
}

TEST_CASE("no step ends before the work of any one stream, and hiding ring transfers never makes it longer") {
    const Calibration calibration = uneven_calibration();
    // The ring has a link to itself: with shared links an earlier start may, as in life, take the link from another.
    Topology topology = pair_topology();
    topology.groups[static_cast<std::size_t>(CommGroup::ring)] = {2, 1};
    Timeline timeline;
    Schedule schedule;
    int shorter = 0;
    for (unsigned seed = 1; seed <= 1000; ++seed) {
        CAPTURE(seed);
        random_schedule(schedule, seed, true);
        PlayOptions options;
        const Playback serial = timeline.play(schedule, calibration, topology, AttentionKernel::fa3, options);
        options.ring_overlap = Overlap::hidden;
        const Playback hidden = timeline.play(schedule, calibration, topology, AttentionKernel::fa3, options);
        using enum CostClass;
        double compute = 0;
        for (const CostClass c : {attention, gemm, memory_bound, loss_gemm, loss_memory}) {
            compute += hidden.busy[static_cast<std::size_t>(c)];
        }
        CHECK(hidden.seconds >= compute * (1 - 1e-12));
        CHECK(hidden.seconds >= hidden.busy[static_cast<std::size_t>(all_to_all)] * (1 - 1e-12));
        CHECK(hidden.seconds <= serial.seconds * (1 + 1e-12));
        if (hidden.seconds < 0.999 * serial.seconds) ++shorter;
    }
    CHECK(shorter > 100);
}
