// SPDX-License-Identifier: Apache-2.0
// Loops inside a segment are skipped over as repetitions of a segment are, and give the same time as playing them out.
#include <doctest/doctest.h>

#include "configs/calibration.hpp"
#include "simulator/timeline.hpp"
#include "simulator/topology.hpp"
#include "tests/scenario.hpp"

namespace headroom {

TEST_CASE("FPDT's inner loops: fast path equals full expansion") {
    Timeline timeline;
    for (const std::int64_t context : {128 * kibi, 192 * kibi, 512 * kibi, 2048 * kibi}) {
        for (const Implementation implementation : {Implementation::megatron_deepspeed, Implementation::lean}) {
            for (const bool offload : {true, false}) {
                Scenario scenario(Method::fpdt, context);
                scenario.settings.implementation = implementation;
                scenario.settings.offload_chunks = offload;
                const Recipe recipe = scenario.recipe();
                const Calibration calibration = calibration_for(scenario.cluster);
                Schedule schedule;
                build_training_step(scenario.workload(), schedule);
                const Topology group = topology(recipe, scenario.cluster);
                const Playback fast = timeline.play(schedule, calibration, group, recipe.attention_kernel, {});
                const Playback full = timeline.play_again({.every_repetition = true});
                CAPTURE(context);
                CAPTURE(to_string(implementation));
                CAPTURE(offload);
                CHECK(fast.seconds == doctest::Approx(full.seconds).epsilon(1e-9));
                for (std::size_t i = 0; i < cost_class_count; ++i) {
                    CHECK(fast.busy[i] == doctest::Approx(full.busy[i]).epsilon(1e-9));
                    CHECK(fast.exposed[i] == doctest::Approx(full.exposed[i]).epsilon(1e-6).scale(full.seconds));
                }
                if (context >= 512 * kibi) CHECK(fast.events_played * 4 < full.events_played);
            }
        }
    }
}

TEST_CASE("a loop costs its body as many times as it runs") {
    // 5 runs of a 1 GiB copy at the copy rate: five times one, less nothing that overlaps.
    const Calibration calibration = calibration_for(load_cluster("h100-sxm-80gb"));
    const auto seconds = [&](std::int64_t runs) {
        Schedule schedule;
        Builder builder(schedule);
        builder.segment("one", Phase::forward);
        builder.loop(runs, [&] { builder.memory_bound("copy", MemoryKernel::copy, {gibi}, {gibi}); });
        builder.finish();
        Timeline timeline;
        return timeline.play(schedule, calibration, Topology{}, AttentionKernel::fa3, {}).seconds;
    };
    CHECK(seconds(5) - seconds(4) == doctest::Approx(seconds(4) - seconds(3)).epsilon(1e-9));
    CHECK(seconds(5) - seconds(4) > 2.0 * gibi / calibration.memory.copy_rate.high);
    CHECK(seconds(0) == 0);
}

}  // namespace headroom
