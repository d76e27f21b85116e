// SPDX-License-Identifier: Apache-2.0
// How fast planning is. Run build/<preset>/headroom_benchmarks; ctest does not.
#include <benchmark/benchmark.h>

#include "configs/load.hpp"
#include "planner/max_context.hpp"
#include "planner/plan.hpp"

namespace headroom {

namespace {

void plan_at_1m(benchmark::State& state, Method method) {
    const Transformer model = load_model("llama3-8b");
    const Cluster cluster = load_cluster("h100-sxm-80gb");
    Settings said;
    said.method = method;
    said.context = Tokens{mebi};
    const Recipe recipe = resolve(said, published_recipe(method), model, cluster);
    for (auto _ : state) benchmark::DoNotOptimize(make_plan(model, cluster, recipe));
    state.counters["plans/s"] =
        benchmark::Counter(static_cast<double>(state.iterations()), benchmark::Counter::kIsRate);
}

void max_context_of_all_methods(benchmark::State& state) {
    const Transformer model = load_model("llama3-8b");
    const Cluster cluster = load_cluster("h100-sxm-80gb");
    for (auto _ : state) {
        for (std::size_t i = 0; i < method_names.size(); ++i) {
            const auto method = static_cast<Method>(i);
            Settings said;
            said.method = method;
            benchmark::DoNotOptimize(max_context(said, published_recipe(method), model, cluster));
        }
    }
}

BENCHMARK_CAPTURE(plan_at_1m, native, Method::native)->Unit(benchmark::kMicrosecond);
BENCHMARK_CAPTURE(plan_at_1m, ring, Method::ring)->Unit(benchmark::kMicrosecond);
BENCHMARK_CAPTURE(plan_at_1m, ulysses, Method::ulysses)->Unit(benchmark::kMicrosecond);
BENCHMARK_CAPTURE(plan_at_1m, usp, Method::usp)->Unit(benchmark::kMicrosecond);
BENCHMARK_CAPTURE(plan_at_1m, fpdt, Method::fpdt)->Unit(benchmark::kMicrosecond);
BENCHMARK_CAPTURE(plan_at_1m, upipe, Method::upipe)->Unit(benchmark::kMicrosecond);
BENCHMARK(max_context_of_all_methods)->Unit(benchmark::kMillisecond);

}  // namespace

}  // namespace headroom
