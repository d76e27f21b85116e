// SPDX-License-Identifier: Apache-2.0
// User cases of kind d: units, conventions and what a figure is.
#include <nlohmann/json.hpp>

#include "configs/measurement.hpp"
#include "models/training_step.hpp"
#include "planner/validate.hpp"
#include "reports/numbers.hpp"
#include "tests/run_headroom.hpp"
#include "tests/user_cases.hpp"

namespace headroom {
namespace {

Bytes hidden_state(const std::string& model, const std::string& context, int gpus) {
    const CaseBed bed = CaseBed().of(model).on("h100-sxm-80gb", gpus);
    return make_workload(bed.model, bed.cluster, bed.recipe({"method=ring", "context=" + context})).hidden;
}

nlohmann::json plan_of(const std::vector<std::string>& more) {
    std::vector<std::string> words{"plan", "--format", "json"};
    words.insert(words.end(), more.begin(), more.end());
    return nlohmann::json::parse(run_headroom(words).out);
}

/// Bytes that one rank passes on in the forward of one block, by kind of collective.
std::int64_t sent(const CaseBed& bed, const std::vector<std::string>& assignments, CollectiveKind kind) {
    Schedule schedule;
    build_training_step(make_workload(bed.model, bed.cluster, bed.recipe(assignments)), schedule);
    std::int64_t sum = 0;
    for (const Segment& segment : schedule.segments) {
        if (std::string(segment.name) != "middle blocks" || segment.phase != Phase::forward) continue;
        for_each_event(schedule, segment, [&](const Event& event) {
            if (event.kind == EventKind::collective && event.collective.kind == kind) sum += event.collective.bytes;
        });
    }
    return sum;
}

}  // namespace

USER_CASE("C101", "logits of 18,750 tokens: 9.62 GB are 8.96 GiB") {
    const CaseBed bed = CaseBed().on("h100-sxm-80gb", 1);
    const Plan plan = bed.plan(alst("18750", {"ulysses=1"}));
    const Bytes logits = part_bytes(plan, "log-probabilities");
    CHECK(logits.value == 9'619'200'000);
    CHECK(gib(logits) == "8.96");
    CHECK(says(run_headroom({"plan", "--context", "1M"}).out, "Device memory in GiB"));
}
USER_CASE("C103", "GB or GiB in checkpoint arithmetic: five published figures") {
    CHECK(36 * in_gib(hidden_state("qwen3-8b", "131072", 1)) == 36.0);  // "36 GB" = 38.65e9
    CHECK(36 * hidden_state("qwen3-8b", "131072", 1).value == 38'654'705'664);
    CHECK(36 * in_gib(hidden_state("qwen3-8b", "1M", 1)) == 288.0);  // "288 GB per GPU", not sharded
    CHECK(36 * in_gib(hidden_state("qwen3-8b", "1M", 8)) == 36.0);   // with 8 ranks
    CHECK(32 * in_gib(hidden_state("llama3-8b", "500000", 1)) == doctest::Approx(122.07).epsilon(1e-4));
    CHECK(in_gib(hidden_state("qwen3-4b", "98304", 1)) == 0.46875);                          // a block
    CHECK(parse_metric("peak_gib", "").unit * 7 == doctest::Approx(7.516e9).epsilon(1e-4));  // 7.0 GiB = 7.516 GB
    // A measured memory without a unit is asked for one.
    CHECK_THROWS_WITH_AS(parse_metric("peak_reserved", "line 3"), "peak_reserved has no unit", Error);
}
USER_CASE("C105", "allocated, reserved and in use are three numbers") {
    const nlohmann::json device = plan_of({"--context", "1M"})["device_memory"];
    CHECK(device["peak_bytes"] < device["peak_reserved_bytes"]);
    CHECK(device["outside_allocator_bytes"] > 0);
    // A result is scored against the number it is: the same 50 GiB, three errors.
    const MeasurementFile file = read_measurement_csv(
        "method,context,gpus,max memory allocated GiB,max memory reserved GiB,nvidia-smi GiB\nupipe,3M,8,50,50,50\n",
        "runs.csv", "llama3-8b", "h100-sxm-80gb");
    const Validation validation = validate(file.measurements);
    REQUIRE(validation.comparisons.size() == 3);
    CHECK(*validation.comparisons[0].predicted < *validation.comparisons[1].predicted);
    CHECK(*validation.comparisons[1].predicted < *validation.comparisons[2].predicted);
}
USER_CASE("C107", "what lies outside the allocator is visible, configurable, and counted in the verdict alone") {
    CaseBed bed = CaseBed().on("h200", 1);
    const Plan one = bed.plan({"method=ulysses", "context=64K"});
    CHECK(in_gib(one.device.outside_allocator) > 0.4);
    CHECK(in_gib(one.device.outside_allocator) < 1.8);  // context alone: 0.47 to 1.78 GiB
    bed.cluster.cuda_context += Bytes{gibi};
    const Plan more = bed.plan({"method=ulysses", "context=64K"});
    CHECK(more.device.usable == one.device.usable - Bytes{gibi});
    CHECK(more.device.peak == one.device.peak);
    CHECK(says(run_headroom({"plan", "--context", "1M"}).out, "CUDA context and libraries"));
}
USER_CASE("C108", "checkpoints of Llama-8B at 32K, and saved tensors by the model's shape") {
    CHECK(32 * in_gib(hidden_state("llama3.1-8b", "32768", 1)) == 8.0);
    // Without checkpointing a block keeps, in units of the hidden state: input, two norms, residual and attention
    // output (5), q, k, v (1.5), three FFN-wide tensors with Liger (3 * 3.5): derived from the shape, so a wider MLP
    // keeps more.
    const auto kept = [](const Transformer& model, const char* loss = "tiling.loss=auto") {
        const CaseBed bed = CaseBed().of(model).on("h200", 1);
        const Workload work =
            make_workload(bed.model, bed.cluster, bed.recipe(alst("32K", {"ulysses=1", "checkpointing=none", loss})));
        Schedule schedule;
        build_training_step(work, schedule);
        std::int64_t net = 0;
        for (const Segment& segment : schedule.segments) {
            if (std::string(segment.name) != "middle blocks" || segment.phase != Phase::forward) continue;
            std::vector<std::int64_t> bytes(schedule.tensors);
            for_each_event(schedule, segment, [&](const Event& event) {
                if (event.kind == EventKind::allocate && event.place == Place::device) {
                    bytes[event.id] = event.bytes;
                    net += event.bytes;
                } else if (event.kind == EventKind::release) {
                    net -= bytes[event.id];
                }
            });
        }
        return static_cast<double>(net) / static_cast<double>(work.hidden.value);
    };
    const double llama = kept(load_model("llama3.1-8b"));
    CHECK(llama == doctest::Approx(5 + 1.5 + 3 * 3.5).epsilon(0.01));
    CHECK(kept(model_of("{base: llama3.1-8b, ffn: 28672}")) - llama == doctest::Approx(3 * 3.5));
    // Without Liger each norm keeps its input in fp32 and the product before the weight (3), the MLP act(gate) too.
    const double eager = kept(load_model("llama3.1-8b"), "tiling.loss=off");
    CHECK(eager == doctest::Approx(llama + 2 * 3 + 3.5).epsilon(0.01));
    MESSAGE("hidden-size copies of a Llama-8B block without checkpointing: ", eager, ", reported 28");
}
USER_CASE("C117", "communication of a block: Ulysses and ring, linear in the context") {
    for (const char* name : {"llama2-7b", "llama3-8b"}) {  // f = KV heads / query heads = 1 and 1/4
        CAPTURE(name);
        const CaseBed bed = CaseBed().of(name);
        const double f = static_cast<double>(bed.model.kv_heads) / static_cast<double>(bed.model.heads);
        const double x = static_cast<double>(hidden_state(name, "1M", 8).value);
        const auto ulysses = static_cast<double>(
            sent(bed, {"method=ulysses", "context=1M", "implementation=lean"}, CollectiveKind::all_to_all));
        CHECK(ulysses == doctest::Approx((2 + 2 * f) * x));  // of which 7/8 leaves the GPU
        const auto ring = [&](const char* context) {
            return static_cast<double>(sent(bed,
                                            {"method=ring", std::string("context=") + context, "implementation=lean"},
                                            CollectiveKind::send_recv));
        };
        CHECK(ring("1M") == doctest::Approx(2 * f * x * 7));
        CHECK(ring("2M") == 2 * ring("1M"));  // not quadratic
        // simulate prints what leaves the GPU: 7/8 of an all-to-all, the messages of a ring as they are.
        const std::string text = run_headroom({"simulate", "--model", name, "--method", "ulysses", "--implementation",
                                               "lean", "--context", "1M"})
                                     .out;
        CHECK(says(text, "all-to-all over 8 (Ulysses)"));
        CHECK(says(text, gib(Bytes{static_cast<std::int64_t>((2 + 2 * f) * x * 7 / 8)})));
        CHECK(says(run_headroom(
                       {"simulate", "--model", name, "--method", "ring", "--implementation", "lean", "--context", "1M"})
                       .out,
                   gib(Bytes{static_cast<std::int64_t>(2 * f * x * 7)})));
    }
}
USER_CASE("C118", "lengths are global, and both are echoed") {
    const std::string text = run_headroom({"plan", "--context", "1M"}).out;
    CHECK(says(text, "1,048,576 tokens global (1M), 131,072 per GPU"));
    CHECK(says(run_headroom({"plan", "--help"}).out, "length of one sequence over all GPUs"));
}
USER_CASE("C120", "a parameter changes what it says it changes") {
    CaseBed bed;
    const std::vector<std::string> base{"method=usp", "context=1M", "ulysses=4", "ring=2"};
    const Plan before = bed.plan(base);
    bed.cluster.host_memory_usable = 0.5;
    const Plan half = bed.plan(base);
    CHECK(half.host.usable_per_node < before.host.usable_per_node);
    CHECK(half.device.peak == before.device.peak);
    for (const char* change :
         {"context=2M", "batch=2", "ulysses=8", "attention_kernel=cudnn", "implementation=lean",
          "offload.block_inputs=none", "offload.optimizer=true", "tiling.mlp=off", "tiling.loss=off",
          "sharding.degree=4", "precision.optimizer=bf16", "precision.parameters=bf16"}) {
        CAPTURE(change);
        std::vector<std::string> changed = base;
        changed.emplace_back(change);
        if (std::string(change) == "ulysses=8") changed.emplace_back("ring=1");
        const Plan after = CaseBed().plan(changed);
        CHECK((after.device.peak != before.device.peak || after.host.peak_per_node != before.host.peak_per_node));
    }
    // Norm weights are small, and are not lost: hidden and QK norms count.
    CHECK(count_parameters(load_model("qwen3-8b")).norms == 2 * 4096 + 2 * 128);
}
USER_CASE("C121", "the worst rank is named, rank 0 shown beside it, and totals list their parts") {
    const nlohmann::json device = plan_of({"--method", "ring", "--context", "1M"})["device_memory"];
    CHECK(device["peak_rank"] == 1);
    CHECK(device["rank0_peak_bytes"] < device["peak_bytes"]);
    std::int64_t sum = 0;
    for (const auto& part : device["parts"]) sum += part["bytes"].get<std::int64_t>();
    CHECK(sum == device["peak_bytes"]);
}

}  // namespace headroom
