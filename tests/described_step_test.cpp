// SPDX-License-Identifier: Apache-2.0
// The step that is run has the bytes and the work of the step that is planned.
#include <doctest/doctest.h>

#include <functional>
#include <map>

#include "models/training_step.hpp"
#include "planner/memory_replay.hpp"
#include "tests/complaint.hpp"
#include "tests/scenario.hpp"

namespace headroom {
namespace {

Workload lean_workload(Method method, std::int64_t context, int gpus, const std::string& model,
                       const std::function<void(Settings&)>& change = {}) {
    Scenario scenario(method, context);
    scenario.with_model(model).with_gpus_per_node(gpus);
    scenario.model.layers = 5;
    Settings& settings = scenario.settings;
    settings.implementation = Implementation::lean;
    settings.attention_kernel = AttentionKernel::cudnn;
    settings.sharding_strategy = ShardingStrategy::fsdp;
    settings.precision_reduction = settings.precision_parameters = settings.precision_optimizer = NumberFormat::fp32;
    settings.offload_optimizer = settings.offload_parameters = false;
    settings.sharding_degree = gpus;
    if (change) change(settings);
    Workload work = scenario.workload();
    if (work.recipe.ring > 1) work.ring_rank = 1;
    return work;
}

struct Amounts {
    double flops = 0, bytes = 0;
    std::int64_t launches = 0;
};

/// What the launches of each name add up to.
std::map<std::string, Amounts> amounts(const Schedule& schedule) {
    std::map<std::string, Amounts> all;
    for (const Segment& segment : schedule.segments) {
        for_each_written(schedule, segment, [&](const Event& event, std::int64_t times) {
            const auto count = static_cast<double>(times);
            Amounts& of = all[event.name];
            switch (event.kind) {
                case EventKind::gemm: {
                    const Gemm& g = event.gemm;
                    of.flops += count * 2 * static_cast<double>(g.m * g.n * g.k) * g.count;
                    of.launches += times * g.count;
                    return;
                }
                case EventKind::attention:
                    of.flops += count * static_cast<double>(event.attention.query_len) *
                                static_cast<double>(event.attention.key_len) * event.attention.heads;
                    of.launches += times;
                    return;
                case EventKind::memory_bound:
                    of.bytes += count * static_cast<double>(event.memory_bound.read + event.memory_bound.written);
                    of.launches += times * event.memory_bound.count;
                    return;
                case EventKind::collective:
                    of.bytes += count * static_cast<double>(event.collective.bytes);
                    of.launches += times;
                    return;
                case EventKind::copy:
                    of.bytes += count * static_cast<double>(event.copy.bytes);
                    of.launches += times;
                    return;
                default:
                    return;
            }
        });
    }
    return all;
}

void check_same(const Workload& work) {
    REQUIRE(not_described(work) == "");
    Schedule planned, described;
    build_training_step(work, planned);
    const StepTensors tensors = build_described_step(work, described);
    CHECK(tensors.gradients.size() == static_cast<std::size_t>(work.model.layers) + 1);
    MemoryReplay replay;
    const MemoryProfile of_plan = replay.run(planned);
    const MemoryProfile of_run = replay.run(described);
    CHECK(of_plan.device_peak.value == of_run.device_peak.value);
    CHECK(of_plan.pinned_peak.value == of_run.pinned_peak.value);
    const auto wanted = amounts(planned), got = amounts(described);
    for (const auto& [name, want] : wanted) {
        CAPTURE(name);
        REQUIRE(got.contains(name));
        const Amounts& have = got.at(name);
        CHECK(have.flops == doctest::Approx(want.flops).epsilon(1e-9));
        CHECK(have.bytes == doctest::Approx(want.bytes).epsilon(1e-6));
        CHECK(have.launches == want.launches);
    }
    CHECK(wanted.size() == got.size());
}

}  // namespace

TEST_CASE("a described step has the peak, the launches and the work of the planned one") {
    for (const Method method : {Method::ulysses, Method::ring, Method::usp, Method::upipe, Method::fpdt}) {
        for (const std::int64_t context : {131072, 524288}) {
            CAPTURE(to_string(method));
            CAPTURE(context);
            check_same(lean_workload(method, context, 8, "llama3-8b"));
            check_same(lean_workload(method, context, 8, "qwen3-0.6b"));  // QK norm, tied embeddings
        }
        check_same(lean_workload(method, 131072, 8, "qwen3-32b"));  // heads wider than hidden; tiles divide the rows
    }
}

TEST_CASE("so it is without checkpoints, without offload, with one layer and on one GPU") {
    check_same(lean_workload(Method::upipe, 65536, 4, "llama3-8b",
                             [](Settings& s) { s.checkpointing = Checkpointing::none; }));
    check_same(lean_workload(Method::ulysses, 65536, 4, "llama3-8b",
                             [](Settings& s) { s.offload_block_inputs = HostPlace::none; }));
    check_same(lean_workload(Method::ulysses, 65536, 1, "llama3-8b"));
    Workload one = lean_workload(Method::ring, 131072, 2, "llama3-8b");
    one.model.layers = 1;
    one.parameters.layers = 1;
    check_same(one);
}

TEST_CASE("what has no description is named") {
    const auto reason = [](Method method, const std::function<void(Settings&)>& change, const char* model) {
        return not_described(lean_workload(method, 131072, 8, model, change));
    };
    CHECK(reason(
              Method::ulysses, [](Settings& s) { s.implementation = Implementation::untied_ulysses; }, "llama3-8b") ==
          "the untied-ulysses implementation");
    const Workload biased = lean_workload(Method::ulysses, 131072, 4, "qwen2.5-7b");
    CHECK(not_described(biased) == "a model with biases in attention");
    Workload normed = lean_workload(Method::ulysses, 131072, 8, "qwen3-32b");
    normed.model.qk_norm = QkNorm::full_width;
    CHECK(not_described(normed) == "a model with QK norm over all heads at once");
    Schedule schedule;
    CHECK_THROWS_WITH_AS(build_described_step(biased, schedule), doctest::Contains("biases in attention"), Error);
}

}  // namespace headroom
