// SPDX-License-Identifier: Apache-2.0
// A routine is its events: calling it gives the bytes and seconds of writing them out.
#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "configs/calibration.hpp"
#include "planner/evaluate.hpp"
#include "planner/reserved_replay.hpp"
#include "simulator/topology.hpp"
#include "tests/scenario.hpp"

namespace headroom {

namespace {

/// The same step without a call: every segment with the events of the routines it calls.
Schedule written_out(const Schedule& schedule) {
    Schedule result;
    result.tensors = schedule.tensors;
    result.syncs = schedule.syncs;
    for (Segment segment : schedule.segments) {
        const auto first = static_cast<std::uint32_t>(result.events.size());
        for (std::uint32_t i = segment.first; i < segment.last; ++i) {
            const Event& event = schedule.events[i];
            if (event.kind != EventKind::call) {
                result.events.push_back(event);
                continue;
            }
            const Routine& routine = schedule.routines[event.id];
            result.events.insert(result.events.end(), schedule.events.begin() + routine.first,
                                 schedule.events.begin() + routine.last);
        }
        segment.first = first;
        segment.last = static_cast<std::uint32_t>(result.events.size());
        result.segments.push_back(segment);
    }
    return result;
}

Scenario scenario_of(Method method, Implementation implementation) {
    Scenario scenario(method, (method == Method::fpdt ? 512 : 1024) * kibi);
    scenario.settings.implementation = implementation;
    return scenario;
}

}  // namespace

TEST_CASE("a schedule that calls routines is the one with their events written out") {
    Timeline timeline;
    MemoryReplay called, written;
    ReservedReplay reserved;
    for (std::size_t i = 0; i < method_names.size(); ++i) {
        const auto method = static_cast<Method>(i);
        const Implementation shipped =
            method == Method::fpdt ? Implementation::megatron_deepspeed : Implementation::untied_ulysses;
        for (const Implementation implementation : {shipped, Implementation::lean}) {
            const Scenario scenario = scenario_of(method, implementation);
            const Recipe recipe = scenario.recipe();
            Schedule schedule;
            build_training_step(scenario.workload(), schedule);
            const Schedule plain = written_out(schedule);
            CAPTURE(method_names[i]);
            CAPTURE(to_string(implementation));
            REQUIRE(schedule.routines.size() == 2);
            CHECK(schedule.events.size() * 3 < plain.events.size() * 2);

            const MemoryProfile& a = called.run(schedule);
            const MemoryProfile& b = written.run(plain);
            CHECK(a.device_peak == b.device_peak);
            CHECK(a.pinned_peak == b.pinned_peak);
            CHECK(a.pageable_peak == b.pageable_peak);
            CHECK(a.at.segment == b.at.segment);
            CHECK(a.at.repetition == b.at.repetition);
            CHECK(a.at.phase == b.at.phase);
            const std::vector<LiveTensors> here = called.alive_at(schedule, a.at);
            const std::vector<LiveTensors> there = written.alive_at(plain, b.at);
            REQUIRE(here.size() == there.size());
            for (std::size_t k = 0; k < here.size(); ++k) {
                CHECK(std::string(here[k].name) == there[k].name);
                CHECK(here[k].bytes == there[k].bytes);
            }
            const ReservedMemory held = reserved.run(schedule, recipe.expandable_segments);
            CHECK(held.peak_reserved == reserved.run(plain, recipe.expandable_segments).peak_reserved);

            const Calibration calibration = calibration_for(scenario.cluster);
            const Topology groups = topology(recipe, scenario.cluster);
            const Playback fast = timeline.play(schedule, calibration, groups, recipe.attention_kernel, {});
            const Playback full = timeline.play_again({.every_repetition = true});
            const Playback whole =
                timeline.play(plain, calibration, groups, recipe.attention_kernel, {.every_repetition = true});
            CHECK(fast.seconds == doctest::Approx(whole.seconds).epsilon(1e-12));
            CHECK(full.seconds == doctest::Approx(whole.seconds).epsilon(1e-12));
            double parts = 0;
            for (std::size_t c = 0; c < cost_class_count; ++c) {
                CHECK(fast.busy[c] == doctest::Approx(whole.busy[c]).epsilon(1e-9));
                CHECK(fast.exposed[c] == doctest::Approx(whole.exposed[c]).epsilon(1e-9).scale(whole.seconds));
                parts += fast.exposed[c];
            }
            CHECK(parts == doctest::Approx(fast.seconds).epsilon(1e-9));
            CHECK(fast.events_played * 3 < full.events_played);
        }
    }
}

TEST_CASE("a peak inside the second call of a routine is found at that call") {
    // 1 GiB by the routine; 2 GiB that stay are allocated between the calls, so the second one peaks.
    Schedule schedule;
    Builder to(schedule);
    const RoutineId routine =
        to.routine(Phase::forward, [&] { to.release(to.allocate("inside", Group::mlp, {gibi})); });
    to.segment("first", Phase::forward);
    to.call(routine);
    to.allocate("outside", Group::states, {2 * gibi});
    to.segment("second", Phase::forward, 3);
    to.call(routine);
    to.finish();
    MemoryReplay replay;
    for (const bool expanded : {false, true}) {
        const MemoryProfile& profile = expanded ? replay.run_expanded(schedule) : replay.run(schedule);
        CHECK(profile.device_peak == Bytes{3 * gibi});
        CHECK(profile.at.segment == 1);
        CHECK(profile.at.repetition == 0);
        CHECK(profile.segments[0][static_cast<std::size_t>(Phase::forward)].device == Bytes{2 * gibi});
        const std::vector<LiveTensors> alive = replay.alive_at(schedule, profile.at);
        REQUIRE(alive.size() == 2);
        CHECK(std::string(alive[0].name) == "outside");
        CHECK(std::string(alive[1].name) == "inside");
    }
}

TEST_CASE("an evaluation is the verdict and the slower role's step time") {
    Evaluator evaluator;
    Timeline timeline;
    for (const Method method : {Method::ulysses, Method::ring, Method::native}) {
        const Scenario scenario(method, 512 * kibi);
        const Recipe recipe = scenario.recipe();
        const Calibration calibration = calibration_for(scenario.cluster);
        const Evaluation found = evaluator.evaluate(scenario.model, scenario.cluster, recipe, calibration);
        const Verdict verdict = evaluator.verdict(scenario.model, scenario.cluster, recipe);
        CHECK(found.memory.device_peak == verdict.device_peak);
        StepTime slowest;
        for (const RingRole role : ring_roles(recipe)) {
            Schedule schedule;
            build_training_step(scenario.workload(role), schedule);
            const StepTime step = predict_step(schedule, calibration, topology(recipe, scenario.cluster),
                                               recipe.attention_kernel, timeline);
            if (step.seconds > slowest.seconds) slowest = step;
        }
        CHECK(found.step.seconds == slowest.seconds);
        CHECK(found.step.low == slowest.low);
        CHECK(found.step.high == slowest.high);
        CHECK(found.step.ring_hidden == slowest.ring_hidden);
    }
}

}  // namespace headroom
