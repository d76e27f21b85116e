// SPDX-License-Identifier: Apache-2.0
// One event at a time: what it costs, which constants that rests on, when it leaves what was measured; and how the
// constants' ranges become the range of a step.
#include <doctest/doctest.h>

#include <cmath>

#include "models/error.hpp"
#include "simulator/step_time.hpp"
#include "tests/simple_calibration.hpp"

using namespace headroom;

namespace {

/// The only event of a schedule.
struct One {
    Schedule schedule;
    Builder builder{schedule};
    One() { builder.segment("one", Phase::forward); }
    OpCost cost(const Calibration& calibration, const Topology& topology = pair_topology(),
                Phase phase = Phase::forward) {
        return cost_of(schedule.events.back(), phase, calibration, topology, AttentionKernel::fa3);
    }
};

}  // namespace

TEST_CASE("products of the loss are counted as loss, and share the bias of all products") {
    const Calibration calibration = simple_calibration();
    One one;
    one.builder.gemm("head", 1000, 1000, 1000);
    CHECK(one.cost(calibration).cost_class == CostClass::gemm);
    CHECK(one.cost(calibration, pair_topology(), Phase::loss).cost_class == CostClass::loss_gemm);
    CHECK(part_of(CostClass::loss_gemm) == Part::loss);
    for (const Bias& bias : biases(calibration, AttentionKernel::fa3)) {
        const bool products = (bias.classes >> static_cast<unsigned>(CostClass::gemm)) & 1U;
        const bool of_the_loss = (bias.classes >> static_cast<unsigned>(CostClass::loss_gemm)) & 1U;
        CHECK(products == of_the_loss);
    }
}

TEST_CASE("every class is moved by exactly one bias") {
    std::uint32_t all = 0;
    for (const Bias& bias : biases(simple_calibration(), AttentionKernel::fa3)) {
        CHECK((all & bias.classes) == 0);
        all |= bias.classes;
    }
    CHECK(all == (1U << cost_class_count) - 1);
}

TEST_CASE("an event of several launches costs the host each of them") {
    Calibration calibration = simple_calibration();
    calibration.host.launch = exactly(2e-6);
    One one;
    one.builder.memory_bound("tiles", MemoryKernel::eager, Bytes{1000}, Bytes{0}, 5);
    CHECK(one.cost(calibration).launch == doctest::Approx(2e-6));
    CHECK(one.cost(calibration).later_launches == doctest::Approx(8e-6));
}

TEST_CASE("a prediction says when it leaves what was measured") {
    Calibration calibration = simple_calibration();
    const auto fa3 = static_cast<std::size_t>(AttentionKernel::fa3);
    One one;
    SUBCASE("length") {
        calibration.attention[fa3].curves[0][0].longest = 1000;
        one.builder.attention("attention", {1000, 1001, 1, 1, 128, 1, false, false});
        CHECK(one.cost(calibration).domain == bits(Domain::attention_length));
        calibration.attention[fa3].curves[0][0].longest = 1001;
        CHECK(one.cost(calibration).domain == 0);
    }
    SUBCASE("mask") {
        calibration.attention[fa3].curves[0][1] = {};
        one.builder.attention("attention", {1000, 1000, 1, 1, 128, 1, true, false});
        CHECK(one.cost(calibration).domain == bits(Domain::attention_mask));
        CHECK(one.cost(calibration).seconds == doctest::Approx(0.256e-3));  // at the rate of the other mask
    }
    SUBCASE("another number of GPUs, or other nodes") {
        one.builder.collective("gather", Stream::all_gather, CollectiveKind::all_gather, CommGroup::sharding,
                               Bytes{1000}, false);
        Topology topology = pair_topology();
        CHECK(one.cost(calibration, topology).domain == 0);
        topology.groups[static_cast<std::size_t>(CommGroup::sharding)] = {4, 4};
        CHECK(one.cost(calibration, topology).domain == bits(Domain::group_size));
        topology.groups[static_cast<std::size_t>(CommGroup::sharding)] = {4, 2};
        CHECK(one.cost(calibration, topology).domain == bits(Domain::across_nodes));
        CHECK(one.cost(calibration, topology).cost_class == CostClass::all_gather_across);
    }
    SUBCASE("copies") {
        one.builder.copy("save", Stream::device_to_host, {true, false, false, 1000});
        CHECK(one.cost(calibration).domain == bits(Domain::pageable));
        CHECK(describe_domain(bits(Domain::pageable)).size() == 1);
    }
}

TEST_CASE("the memo tells apart whatever changes a cost") {
    const Calibration calibration = simple_calibration();
    const Topology topology = pair_topology();
    Schedule schedule;
    Builder builder(schedule);
    builder.segment("all", Phase::forward);
    for (const std::int64_t n : {100, 200, 300}) {
        for (const bool flag : {false, true}) {
            builder.gemm("gemm", 1000, n, 1000, flag ? 1 : 2);
            builder.attention("attention", {n, 1000, 1, 1, 128, 1, false, flag});
            builder.attention("attention", {1000, 1000, 1, 1, 128, static_cast<std::int32_t>(n), flag, false});
            builder.memory_bound("eager", flag ? MemoryKernel::copy : MemoryKernel::eager, Bytes{n}, Bytes{7});
            builder.collective("exchange", Stream::ulysses,
                               flag ? CollectiveKind::all_to_all : CollectiveKind::send_recv, CommGroup::ulysses,
                               Bytes{n}, false);
            builder.copy("copy", Stream::compute, {flag, true, false, n});
            builder.copy("copy", Stream::compute, {true, flag, false, n});
            builder.copy("copy", Stream::compute, {true, false, flag, n});
            builder.host_work("work", flag ? HostWork::Kind::tokenise : HostWork::Kind::zero_fill, n);
        }
    }
    CostMemo memo;
    memo.clear();
    for (int round = 0; round < 2; ++round) {
        for (const Event& event : schedule.events) {
            for (const Phase phase : {Phase::forward, Phase::loss}) {
                const OpCost fresh = cost_of(event, phase, calibration, topology, AttentionKernel::fa3);
                const OpCost kept = memo.lookup(event, phase, calibration, topology, AttentionKernel::fa3);
                CHECK(kept.seconds == fresh.seconds);
                CHECK(kept.cost_class == fresh.cost_class);
                CHECK(kept.domain == fresh.domain);
            }
        }
    }
    // A new calibration, a new memo.
    Calibration slower = calibration;
    slower.memory.copy_rate = exactly(0.5e9);
    memo.clear();
    const Event& eager = schedule.events[3];
    CHECK(memo.lookup(eager, Phase::forward, slower, topology, AttentionKernel::fa3).seconds ==
          cost_of(eager, Phase::forward, slower, topology, AttentionKernel::fa3).seconds);
}

TEST_CASE("which ranks share a node") {
    Recipe recipe;
    Cluster cluster;
    cluster.gpus_per_node = 8;
    const auto shape = [&](CommGroup group) {
        return topology(recipe, cluster).groups[static_cast<std::size_t>(group)];
    };
    recipe.ulysses = 8;
    recipe.ring = 2;
    recipe.sharding.degree = 16;
    CHECK_FALSE(shape(CommGroup::ulysses).crosses());
    CHECK(shape(CommGroup::ring).crosses());
    CHECK(shape(CommGroup::ring).ranks_per_node == 1);
    CHECK(shape(CommGroup::context).ranks_per_node == 8);
    CHECK(shape(CommGroup::sharding).crosses());
    recipe.ulysses = 2;
    recipe.ring = 4;
    CHECK_FALSE(shape(CommGroup::ring).crosses());
    recipe.ulysses = 16;
    CHECK(shape(CommGroup::ulysses).ranks_per_node == 8);
}

namespace {

Constant between(double low, double value, double high) { return {value, low, high, Source::measured, "a test"}; }

}  // namespace

TEST_CASE("a step's range: biases of one class together, independent classes in quadrature") {
    Calibration calibration = simple_calibration();
    calibration.memory.copy_rate = between(0.8e9, 1e9, 1.25e9);  // 25 % slower to 20 % faster
    for (auto& link : calibration.links) link.rate = between(0.8e9, 1e9, 1.25e9);
    One one;
    one.builder.memory_bound("first", MemoryKernel::eager, milliseconds(3), Bytes{0});
    one.builder.memory_bound("second", MemoryKernel::eager, milliseconds(1), Bytes{0});
    one.builder.collective("exchange", Stream::ulysses, CollectiveKind::all_to_all, CommGroup::ulysses, milliseconds(6),
                           true);
    one.builder.finish();
    Timeline timeline;
    const StepTime step = predict_step(one.schedule, calibration, pair_topology(), AttentionKernel::fa3, timeline);
    CHECK(step.seconds.value == doctest::Approx(7e-3));
    CHECK(step.high.value == doctest::Approx(7e-3 + std::hypot(1e-3, 0.75e-3)));
    CHECK(step.low.value == doctest::Approx(7e-3 - std::hypot(0.8e-3, 0.6e-3)));
    double exposed = 0;
    for (const PartTime& part : step.parts) exposed += part.exposed.value;
    CHECK(exposed == doctest::Approx(step.seconds.value));
}

TEST_CASE("the open question of ring overlap is in the range, on the side where the answer may lie") {
    for (const AttentionKernel kernel : {AttentionKernel::fa2, AttentionKernel::fa3}) {
        One one;
        one.builder.collective("ring", Stream::ring, CollectiveKind::send_recv, CommGroup::ring, milliseconds(4),
                               false);
        one.builder.attention("attention", {1000, 1000, 25, 1, 100, 1, false, false});  // 10 ms
        one.builder.wait(Stream::compute, one.builder.record(Stream::ring));
        one.builder.finish();
        Timeline timeline;
        const StepTime step = predict_step(one.schedule, simple_calibration(), pair_topology(), kernel, timeline);
        CHECK(step.ring_hidden.value == doctest::Approx(10e-3));
        CHECK(step.ring_serialised.value == doctest::Approx(14e-3));
        CHECK(step.low.value == doctest::Approx(10e-3));
        CHECK(step.high.value == doctest::Approx(14e-3));
        CHECK(step.seconds.value == doctest::Approx(kernel == AttentionKernel::fa2 ? 10e-3 : 14e-3));
    }
}

TEST_CASE("a kernel without rates is refused by name") {
    Calibration calibration = simple_calibration();
    calibration.attention[static_cast<std::size_t>(AttentionKernel::fa3)] = {};
    One one;
    one.builder.attention("attention", {1000, 1000, 1, 1, 128, 1, false, false});
    one.builder.finish();
    Timeline timeline;
    CHECK_THROWS_WITH_AS(predict_step(one.schedule, calibration, pair_topology(), AttentionKernel::fa3, timeline),
                         "calibration simple has no rates for attention kernel fa3", Error);
}
