// SPDX-License-Identifier: Apache-2.0
// What must hold for any recipe: schedules balance, more tokens never need less, degenerate chunks are the plain
// method, and the fast replay is the full one.
#include <doctest/doctest.h>

#include <algorithm>
#include <random>
#include <set>
#include <string>

#include "models/constraints.hpp"
#include "models/error.hpp"
#include "planner/evaluate.hpp"
#include "planner/reserved_replay.hpp"
#include "tests/scenario.hpp"

namespace headroom {
namespace {

constexpr std::int64_t kilo = 1024;
constexpr Method all_methods[] = {Method::native, Method::ring, Method::ulysses,
                                  Method::usp,    Method::fpdt, Method::upipe};

Scenario lean(Method method, std::int64_t context) {
    Scenario scenario(method, context);
    scenario.settings.implementation = Implementation::lean;
    scenario.settings.sharding_strategy = ShardingStrategy::fsdp;
    scenario.settings.precision_compute = NumberFormat::bf16;
    scenario.settings.precision_reduction = NumberFormat::fp32;
    scenario.settings.attention_kernel = AttentionKernel::fa3;
    scenario.settings.tiling_norm = scenario.settings.tiling_mlp = scenario.settings.tiling_loss =
        Tiling{Tiling::Kind::automatic, 0};
    scenario.settings.offload_block_inputs = HostPlace::pinned;
    scenario.settings.expandable_segments = true;
    return scenario;
}

/// What happens, without names: kinds, streams, places and bytes in order.
std::vector<std::string> events_of(const Workload& work) {
    Schedule schedule;
    build_training_step(work, schedule);
    std::vector<std::string> lines;
    for (const Event& event : schedule.events) {
        std::string line = std::to_string(static_cast<int>(event.kind)) + " " +
                           std::to_string(static_cast<int>(event.stream)) + " " + event.name;
        if (event.kind == EventKind::allocate) line += " " + std::to_string(event.bytes);
        if (event.kind == EventKind::collective) line += " " + std::to_string(event.collective.bytes);
        if (event.kind == EventKind::gemm) line += " " + std::to_string(event.gemm.n);
        lines.push_back(line);
    }
    return lines;
}

/// Random valid recipes over every method, implementation and option.
std::vector<Scenario> random_scenarios(unsigned seed, std::size_t count) {
    std::mt19937 random(seed);
    const auto pick = [&](auto... options) {
        const std::array list{options...};
        return list[random() % list.size()];
    };
    std::vector<Scenario> scenarios;
    while (scenarios.size() < count) {
        const Method method = all_methods[random() % 6];
        Scenario scenario(method, pick(64, 256, 512, 1024, 2048) * kilo);
        scenario.with_model(pick("llama3-8b", "llama3.2-1b", "qwen3-8b", "llama3-70b", "qwen2.5-7b"));
        scenario.with_nodes(pick(1, 1, 2, 4));
        Settings& settings = scenario.settings;
        settings.implementation = pick(Implementation::untied_ulysses, Implementation::lean, Implementation::alst,
                                       Implementation::torchtitan, Implementation::megatron_deepspeed);
        settings.attention_kernel = pick(AttentionKernel::fa2, AttentionKernel::fa3, AttentionKernel::cudnn);
        settings.batch = pick(1, 1, 2, 3);
        settings.rotation = pick(Rotation::all_gather, Rotation::all_to_all);
        settings.checkpointing = pick(Checkpointing::full, Checkpointing::full, Checkpointing::none);
        settings.offload_block_inputs = settings.checkpointing == Checkpointing::none
                                            ? HostPlace::none
                                            : pick(HostPlace::none, HostPlace::pinned, HostPlace::pageable);
        settings.sharding_strategy = pick(ShardingStrategy::fsdp, ShardingStrategy::zero3, ShardingStrategy::zero2,
                                          ShardingStrategy::zero1, ShardingStrategy::none);
        const auto tiling = [&] {
            return pick(Tiling{Tiling::Kind::off, 0}, Tiling{Tiling::Kind::automatic, 0},
                        Tiling{Tiling::Kind::tokens, 3000});
        };
        settings.tiling_norm = tiling();
        settings.tiling_mlp = tiling();
        settings.tiling_loss = tiling();
        settings.precision_compute = pick(NumberFormat::bf16, NumberFormat::fp16, NumberFormat::fp32);
        settings.expandable_segments = pick(true, false);
        if (method == Method::fpdt) {
            settings.chunk_tokens = Tokens{pick(64, 128) * kilo};
            settings.offload_chunks = pick(true, false);
        }
        try {
            scenario.recipe();
        } catch (const Error&) {
            continue;
        }
        scenarios.push_back(scenario);
    }
    return scenarios;
}

}  // namespace

TEST_CASE("every tensor is freed once, and a step ends as it began") {
    for (const Scenario& scenario : random_scenarios(1, 300)) {
        for (const RingRole role : ring_roles(scenario.recipe())) {
            const Workload work = scenario.workload(role);
            CAPTURE(to_string(work.recipe.method));
            CAPTURE(to_string(work.recipe.implementation));
            CAPTURE(to_string(work.recipe.sharding.strategy));
            CAPTURE(static_cast<int>(work.recipe.checkpointing));
            Schedule schedule;
            build_training_step(work, schedule);
            std::vector<int> alive(schedule.tensors, 0);
            std::vector<std::int64_t> bytes(schedule.tensors, 0);
            std::vector<bool> state(schedule.tensors, false);
            bool balanced = true;
            for (const Segment& segment : schedule.segments) {
                for (std::uint32_t i = 0; i < segment.repeat; ++i) {
                    for_each_event(schedule, segment, [&](const Event& event) {
                        if (event.kind == EventKind::allocate) {
                            balanced = balanced && event.bytes >= 0;
                            // Tensors that share an id have the same size: the replay relies on it.
                            balanced = balanced && (alive[event.id] == 0 || bytes[event.id] == event.bytes);
                            bytes[event.id] = event.bytes;
                            state[event.id] = segment.phase == Phase::setup;
                            ++alive[event.id];
                        } else if (event.kind == EventKind::release) {
                            balanced = balanced && --alive[event.id] >= 0;
                        }
                    });
                }
            }
            REQUIRE(balanced);
            for (std::size_t i = 0; i < alive.size(); ++i) CHECK(alive[i] == (state[i] && alive[i] > 0 ? 1 : 0));
        }
    }
}

TEST_CASE("the fast replay equals the expanded one") {
    for (const Scenario& scenario : random_scenarios(2, 120)) {
        const Workload work = scenario.workload();
        Schedule schedule;
        build_training_step(work, schedule);
        MemoryReplay replay;
        const MemoryProfile fast = replay.run(schedule);
        const MemoryProfile full = replay.run_expanded(schedule);
        CAPTURE(to_string(work.recipe.method));
        CHECK(fast.device_peak.value == full.device_peak.value);
        CHECK(fast.pinned_peak.value == full.pinned_peak.value);
        CHECK(fast.pageable_peak.value == full.pageable_peak.value);
        for (std::size_t i = 0; i < fast.segments.size(); ++i) {
            for (std::size_t phase = 0; phase < phase_count; ++phase) {
                CHECK(fast.segments[i][phase].device.value == full.segments[i][phase].device.value);
                CHECK(fast.segments[i][phase].activations.value == full.segments[i][phase].activations.value);
            }
        }
        std::int64_t listed = 0;
        for (const LiveTensors& tensor : replay.alive_at(schedule, fast.at)) {
            if (tensor.place == Place::device) listed += tensor.bytes.value;
        }
        CHECK(listed == fast.device_peak.value);

        ReservedReplay reserved;
        const ReservedMemory quick = reserved.run(schedule, work.recipe.expandable_segments);
        const ReservedMemory whole = reserved.run_expanded(schedule, work.recipe.expandable_segments);
        const bool many_chunks = work.recipe.method == Method::fpdt;
        CHECK(static_cast<double>(quick.peak_reserved.value) ==
              doctest::Approx(static_cast<double>(whole.peak_reserved.value)).epsilon(many_chunks ? 0.02 : 1e-12));
        CHECK(quick.peak_reserved >= fast.device_peak);
        CHECK(quick.peak_held >= fast.device_peak);
    }
}

TEST_CASE("more context never needs less memory") {
    for (const Method method : all_methods) {
        Bytes device, host;
        Evaluator evaluator;
        for (std::int64_t context = 128 * kilo; context <= 4096 * kilo; context += 128 * kilo) {
            const Scenario scenario(method, context);
            const Verdict verdict = evaluator.verdict(scenario.model, scenario.cluster, scenario.recipe());
            CAPTURE(to_string(method));
            CAPTURE(context);
            CHECK(verdict.device_peak >= device);
            CHECK(verdict.host_peak_per_node >= host);
            device = verdict.device_peak;
            host = verdict.host_peak_per_node;
        }
    }
}

TEST_CASE("UPipe with all heads in one stage is Ulysses") {
    Scenario upipe = lean(Method::upipe, 1024 * kilo);
    upipe.settings.heads_per_stage = 32;
    CHECK(events_of(upipe.workload()) == events_of(lean(Method::ulysses, 1024 * kilo).workload()));
}

TEST_CASE("FPDT with one chunk and no offload is Ulysses") {
    Scenario fpdt = lean(Method::fpdt, 1024 * kilo);
    fpdt.settings.chunk_tokens = Tokens{1024 * kilo};
    fpdt.settings.offload_chunks = false;
    CHECK(events_of(fpdt.workload()) == events_of(lean(Method::ulysses, 1024 * kilo).workload()));
}

TEST_CASE("a ring of one, and Ulysses of one, are local attention") {
    std::vector<std::vector<std::string>> local;
    for (const Method method : {Method::ring, Method::ulysses, Method::usp}) {
        Scenario scenario = lean(method, 64 * kilo);
        scenario.with_gpus_per_node(1);
        local.push_back(events_of(scenario.workload()));
    }
    CHECK(local[0] == local[1]);
    CHECK(local[0] == local[2]);
    for (const std::string& line : local[0]) {
        CHECK(line.find("all-to-all") == std::string::npos);
        CHECK(line.find("ring") == std::string::npos);
    }
}

TEST_CASE("the algorithm alone never needs more than a shipped implementation") {
    for (const Method method : all_methods) {
        for (const std::int64_t context : {256 * kilo, 1024 * kilo, 3072 * kilo}) {
            const Scenario shipped(method, context);
            Scenario bare(method, context);
            bare.settings.implementation = Implementation::lean;
            CAPTURE(to_string(method));
            CHECK(bare.plan().device.peak <= shipped.plan().device.peak);
        }
    }
}

TEST_CASE("UPipe's attention intermediates fall by 1 - U/H against Ulysses") {
    // Largest bytes of attention and its exchanges in one forward, beside the log-sum-exp and the output that is handed
    // on.
    const auto intermediates = [](const Workload& work, const std::set<std::string>& handed_on) {
        Schedule schedule;
        build_training_step(work, schedule);
        std::vector<std::int64_t> bytes(schedule.tensors, 0);
        std::int64_t now = 0, peak = 0;
        for (const Segment& segment : schedule.segments) {
            if (std::string(segment.name) != "first block" || segment.phase != Phase::forward) continue;
            for_each_event(schedule, segment, [&](const Event& event) {
                if (event.kind == EventKind::allocate) {
                    const bool counted = (event.group == Group::attention || event.group == Group::communication) &&
                                         !handed_on.contains(event.name);
                    bytes[event.id] = counted ? event.bytes : 0;
                    now += bytes[event.id];
                } else if (event.kind == EventKind::release) {
                    now -= bytes[event.id];
                }
                peak = std::max(peak, now);
            });
        }
        return peak;
    };
    Scenario upipe = lean(Method::upipe, 1024 * kilo);
    Scenario ulysses = lean(Method::ulysses, 1024 * kilo);
    for (Scenario* scenario : {&upipe, &ulysses}) {
        scenario->model.heads = scenario->model.kv_heads = 64;  // one KV head per query head, as the paper counts
        scenario->model.head_dim = 64;
    }
    const std::int64_t plain =
        intermediates(ulysses.workload(), {"log-sum-exp", "attention output, my tokens", "attention result"});
    for (const int stage : {8, 16, 32}) {
        upipe.settings.heads_per_stage = stage;
        const std::int64_t staged =
            intermediates(upipe.workload(), {"log-sum-exp", "attention output", "attention result"});
        CAPTURE(stage);
        CHECK(staged * 64 == plain * stage);
    }
}

}  // namespace headroom
