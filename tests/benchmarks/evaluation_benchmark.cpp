// SPDX-License-Identifier: Apache-2.0
// How fast one recipe is evaluated, whole and by stage: schedule, bytes, seconds.
#include <benchmark/benchmark.h>

#include <cstdint>
#include <fstream>

#include "configs/calibration.hpp"
#include "configs/load.hpp"
#include "models/training_step.hpp"
#include "planner/evaluate.hpp"
#include "simulator/step_time.hpp"
#include "simulator/topology.hpp"

namespace headroom {

namespace {

/// Llama-3-8B on 8 H100 at 1M tokens; FPDT at 4M, which is 64 chunks.
struct Bench {
    Transformer model = load_model("llama3-8b");
    Cluster cluster = load_cluster("h100-sxm-80gb");
    Calibration calibration = calibration_for(cluster);
    Settings said;

    explicit Bench(Method method) {
        said.method = method;
        said.context = Tokens{(method == Method::fpdt ? 4 : 1) * mebi};
    }
    Recipe recipe() const { return resolve(said, published_recipe(*said.method), model, cluster); }
};

void resolve_recipe(benchmark::State& state, Method method) {
    const Bench bench(method);
    for (auto _ : state) benchmark::DoNotOptimize(bench.recipe());
}

void build_schedule(benchmark::State& state, Method method) {
    const Bench bench(method);
    const Recipe recipe = bench.recipe();
    Schedule schedule;
    for (auto _ : state) {
        build_training_step(make_workload(bench.model, bench.cluster, recipe), schedule);
        benchmark::DoNotOptimize(schedule.events.data());
    }
    state.counters["events"] = static_cast<double>(schedule.events.size());
}

void replay_memory(benchmark::State& state, Method method) {
    const Bench bench(method);
    Schedule schedule;
    MemoryReplay replay;
    build_training_step(make_workload(bench.model, bench.cluster, bench.recipe()), schedule);
    for (auto _ : state) benchmark::DoNotOptimize(replay.run(schedule).device_peak);
}

void play_timeline(benchmark::State& state, Method method) {
    const Bench bench(method);
    const Recipe recipe = bench.recipe();
    const Topology groups = topology(recipe, bench.cluster);
    Schedule schedule;
    Timeline timeline;
    build_training_step(make_workload(bench.model, bench.cluster, recipe), schedule);
    for (auto _ : state) {
        benchmark::DoNotOptimize(
            predict_step(schedule, bench.calibration, groups, recipe.attention_kernel, timeline).seconds);
    }
    const Playback playback = timeline.play(schedule, bench.calibration, groups, recipe.attention_kernel, {});
    state.counters["played"] = static_cast<double>(playback.events_played);
}

/// Recipe to verdict and step time, as a sweep does it.
void evaluate(benchmark::State& state, Method method) {
    const Bench bench(method);
    Evaluator evaluator;
    for (auto _ : state) {
        const Evaluation found = evaluator.evaluate(bench.model, bench.cluster, bench.recipe(), bench.calibration);
        benchmark::DoNotOptimize(found.step.seconds);
    }
    state.counters["evaluations/s"] =
        benchmark::Counter(static_cast<double>(state.iterations()), benchmark::Counter::kIsRate);
}

std::int64_t resident_bytes() {
    std::int64_t size = 0, resident = 0;
    std::ifstream("/proc/self/statm") >> size >> resident;
    return resident * 4096;
}

/// 100,000 recipes that differ in method, context, stages and chunks: storage must not grow with their number.
void sweep(benchmark::State& state) {
    const Transformer model = load_model("llama3-8b");
    const Cluster cluster = load_cluster("h100-sxm-80gb");
    const Calibration calibration = calibration_for(cluster);
    constexpr Method methods[]{Method::ulysses, Method::upipe, Method::ring, Method::native, Method::usp, Method::fpdt};
    for (auto _ : state) {
        Evaluator evaluator;
        std::int64_t before = 0, fitting = 0;
        for (std::int64_t i = 0; i < 100'000; ++i) {
            if (i == 1'000) before = resident_bytes();
            Settings said;
            said.method = methods[i % 6];
            said.context = Tokens{(1 + i / 6 % 24) * 128 * kibi};
            if (said.method == Method::upipe) said.heads_per_stage = 8 << (i / 6 % 3);
            if (said.method == Method::fpdt) said.chunk_tokens = Tokens{128 * kibi};
            const Recipe recipe = resolve(said, published_recipe(*said.method), model, cluster);
            fitting += evaluator.evaluate(model, cluster, recipe, calibration).memory.fits() ? 1 : 0;
        }
        state.counters["fitting"] = static_cast<double>(fitting);
        state.counters["grown_bytes"] = static_cast<double>(resident_bytes() - before);
    }
    state.counters["evaluations/s"] =
        benchmark::Counter(1e5 * static_cast<double>(state.iterations()), benchmark::Counter::kIsRate);
}

#define BENCHMARK_OF_METHODS(stage)                                                    \
    BENCHMARK_CAPTURE(stage, native, Method::native)->Unit(benchmark::kMicrosecond);   \
    BENCHMARK_CAPTURE(stage, ring, Method::ring)->Unit(benchmark::kMicrosecond);       \
    BENCHMARK_CAPTURE(stage, ulysses, Method::ulysses)->Unit(benchmark::kMicrosecond); \
    BENCHMARK_CAPTURE(stage, usp, Method::usp)->Unit(benchmark::kMicrosecond);         \
    BENCHMARK_CAPTURE(stage, fpdt, Method::fpdt)->Unit(benchmark::kMicrosecond);       \
    BENCHMARK_CAPTURE(stage, upipe, Method::upipe)->Unit(benchmark::kMicrosecond)

BENCHMARK_OF_METHODS(resolve_recipe);
BENCHMARK_OF_METHODS(build_schedule);
BENCHMARK_OF_METHODS(replay_memory);
BENCHMARK_OF_METHODS(play_timeline);
BENCHMARK_OF_METHODS(evaluate);
BENCHMARK(sweep)->Unit(benchmark::kMillisecond)->Iterations(1);

}  // namespace

}  // namespace headroom
