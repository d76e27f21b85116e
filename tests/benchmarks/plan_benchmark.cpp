// SPDX-License-Identifier: Apache-2.0
// How fast planning is. Run build/<preset>/headroom_benchmarks; ctest does not.
#include <benchmark/benchmark.h>

#include "configs/calibration.hpp"
#include "configs/load.hpp"
#include "planner/evaluate.hpp"
#include "planner/max_context.hpp"
#include "planner/plan.hpp"
#include "planner/simulation.hpp"

namespace headroom {

namespace {

struct Bench {
    Transformer model = load_model("llama3-8b");
    Cluster cluster = load_cluster("h100-sxm-80gb");
    TimeBasis basis{calibration_for(cluster), AttentionCount::causal};

    Recipe recipe(Method method, std::int64_t context) const {
        Settings said;
        said.method = method;
        said.context = Tokens{context};
        return resolve(said, published_recipe(method), model, cluster);
    }
};

void per_second(benchmark::State& state, const char* name) {
    state.counters[name] = benchmark::Counter(static_cast<double>(state.iterations()), benchmark::Counter::kIsRate);
}

/// The memory half alone.
void verdict(benchmark::State& state, Method method, std::int64_t context) {
    const Bench bench;
    const Recipe recipe = bench.recipe(method, context);
    Evaluator evaluator;
    for (auto _ : state) benchmark::DoNotOptimize(evaluator.verdict(bench.model, bench.cluster, recipe));
    per_second(state, "verdicts/s");
}

void plan_at_1m(benchmark::State& state, Method method) {
    const Bench bench;
    const Recipe recipe = bench.recipe(method, mebi);
    for (auto _ : state) benchmark::DoNotOptimize(make_plan(bench.model, bench.cluster, recipe, bench.basis));
    per_second(state, "plans/s");
}

void simulate_at_1m(benchmark::State& state, Method method) {
    const Bench bench;
    const Recipe recipe = bench.recipe(method, mebi);
    for (auto _ : state) benchmark::DoNotOptimize(simulate(bench.model, bench.cluster, recipe, bench.basis));
}

void max_context_of_all_methods(benchmark::State& state) {
    const Bench bench;
    for (auto _ : state) {
        for (std::size_t i = 0; i < method_names.size(); ++i) {
            const auto method = static_cast<Method>(i);
            Settings said;
            said.method = method;
            benchmark::DoNotOptimize(
                max_context(said, published_recipe(method), bench.model, bench.cluster, bench.basis));
        }
    }
}

constexpr std::int64_t fpdt_64_chunks = 64 * std::int64_t{65536};

BENCHMARK_CAPTURE(verdict, ring, Method::ring, mebi)->Unit(benchmark::kMicrosecond);
BENCHMARK_CAPTURE(verdict, upipe, Method::upipe, mebi)->Unit(benchmark::kMicrosecond);
BENCHMARK_CAPTURE(verdict, fpdt_64_chunks, Method::fpdt, fpdt_64_chunks)->Unit(benchmark::kMicrosecond);
BENCHMARK_CAPTURE(plan_at_1m, ring, Method::ring)->Unit(benchmark::kMicrosecond);
BENCHMARK_CAPTURE(plan_at_1m, fpdt, Method::fpdt)->Unit(benchmark::kMicrosecond);
BENCHMARK_CAPTURE(plan_at_1m, upipe, Method::upipe)->Unit(benchmark::kMicrosecond);
BENCHMARK_CAPTURE(simulate_at_1m, upipe, Method::upipe)->Unit(benchmark::kMillisecond);
BENCHMARK(max_context_of_all_methods)->Unit(benchmark::kMillisecond);

}  // namespace

}  // namespace headroom
