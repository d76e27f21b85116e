// SPDX-License-Identifier: Apache-2.0
// User cases of kind b: which degrees, chunks and lengths are valid, and what is said when they are not.
#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "models/constraints.hpp"
#include "models/training_step.hpp"
#include "models/workload.hpp"
#include "tests/run_headroom.hpp"
#include "tests/user_cases.hpp"

namespace headroom {
namespace {

CaseBed heads(int query, int kv) {
    CaseBed bed;
    bed.of(model_of("{base: llama3-8b, heads: " + std::to_string(query) + ", kv_heads: " + std::to_string(kv) + "}"));
    return bed;
}

Workload workload(const CaseBed& bed, const std::vector<std::string>& assignments) {
    return make_workload(bed.model, bed.cluster, bed.recipe(assignments));
}

/// Bytes that one rank sends into all-to-alls in the forward of one block.
std::int64_t all_to_all_bytes(const Workload& work) {
    Schedule schedule;
    build_training_step(work, schedule);
    std::int64_t sum = 0;
    for (const Segment& segment : schedule.segments) {
        if (std::string(segment.name) != "middle blocks" || segment.phase != Phase::forward) continue;
        for_each_event(schedule, segment, [&](const Event& event) {
            const bool exchange =
                event.kind == EventKind::collective && event.collective.kind == CollectiveKind::all_to_all;
            if (exchange) sum += event.collective.bytes;
        });
    }
    return sum;
}

std::string ulysses(int degree) { return "ulysses=" + std::to_string(degree); }

}  // namespace

USER_CASE("C36", "40 query and 8 KV heads: degrees 1, 2, 4, 8 and 40") {
    const CaseBed bed = heads(40, 8).on("h100-sxm-80gb", 40);
    CHECK(valid_ulysses_degrees(bed.model) == std::vector<int>{1, 2, 4, 8, 40});
    for (const int degree : {5, 10, 20}) {  // the query heads divide, the KV rule fails
        CHECK(says(bed.refusal({"method=ulysses", "context=640K", ulysses(degree)}), "one must divide the other"));
    }
    for (const int degree : {16, 32}) {
        CHECK(says(bed.refusal({"method=ulysses", "context=640K", ulysses(degree)}), "40 heads are not divisible by"));
    }
    // At 40 every rank has one query head and one KV head: K and V are replicated five times.
    const Workload work = workload(bed, {"method=ulysses", "context=640K", "ulysses=40", "ring=1"});
    CHECK(work.kv_heads == 40);
    const std::int64_t tokens = 640 * 1024 / 40;
    CHECK(work.key.value == 2 * tokens * 40 * 128);
    CHECK(work.key.value == 5 * (2 * tokens * 8 * 128));
    // Q, K, V and the output: 4 tensors of 40 heads instead of 2 + 2 * 8/40.
    CHECK(all_to_all_bytes(work) == 4 * 2 * tokens * 40 * 128);
}
USER_CASE("C37", "28 query and 4 KV heads on 8 GPUs: the error names both, and what works") {
    const CaseBed bed = CaseBed().of("qwen2.5-7b");
    const std::string text = bed.refusal({"method=ulysses", "context=64K", "ulysses=8"});
    CHECK(says(text, "28 heads are not divisible by ulysses degree 8"));
    CHECK(says(text, "1, 2, 4, 28"));
    CHECK(says(text, "ulysses 4 x ring 2"));
    CHECK(says(bed.refusal({"method=ulysses", "context=448K", "ulysses=7"}), "one must divide the other"));
    CHECK(bed.refusal({"method=usp", "context=64K", "ulysses=4", "ring=2"}).empty());
    CHECK(bed.refusal({"method=ring", "context=64K"}).empty());
}
USER_CASE("C38", "32 query and 8 KV heads: 16 with every KV head twice, 32 with four copies, 64 never") {
    const CaseBed bed = CaseBed().on("h100-sxm-80gb", 64);
    const Workload sixteen = workload(bed, {"method=ulysses", "context=1M", "ulysses=16"});
    CHECK(sixteen.kv_heads / bed.model.kv_heads == 2);
    CHECK(workload(bed, {"method=ulysses", "context=1M", "ulysses=32"}).kv_heads / bed.model.kv_heads == 4);
    CHECK_FALSE(bed.refusal({"method=ulysses", "context=1M", "ulysses=64"}).empty());
    // Q and the output with 32 heads, K and V with 16 (not 8), 2 bytes, 64K tokens a rank.
    const std::int64_t tokens = 1024 * 1024 / 16;
    CHECK(all_to_all_bytes(sixteen) == 2 * tokens * 128 * (2 * 32 + 2 * 16));
    CHECK(says(bed.refusal({"method=ulysses", "context=1000001", "ulysses=16"}), "not a multiple of 16"));
}
USER_CASE("C39", "uneven heads are rejected, even ones are even") {
    CHECK(says(heads(7, 7).refusal({"method=ulysses", "context=64K", "ulysses=4"}), "7 heads are not divisible by"));
    CHECK(says(heads(20, 20).refusal({"method=ulysses", "context=64K", "ulysses=8"}), "20 heads are not divisible by"));
    const CaseBed even = heads(12, 12).on("h100-sxm-80gb", 4);
    const Workload work = workload(even, {"method=ulysses", "context=64K", "ulysses=4"});
    CHECK(work.model.heads / work.recipe.ulysses == 3);
}
USER_CASE("C40", "48 heads with 64 wanted: divisors listed, and 16 x 4 proposed") {
    const std::string text =
        heads(48, 48).on("h100-sxm-80gb", 64).refusal({"method=ulysses", "context=1M", "ulysses=64"});
    CHECK(says(text, "64 exceeds 48 heads"));
    CHECK(says(text, "1, 2, 3, 4, 6, 8, 12, 16, 24, 48"));
    CHECK(says(text, "ulysses 16 x ring 4"));
}
USER_CASE("C44", "an odd length is refused with the next that works, never cut") {
    const std::string text = CaseBed().on("h100-sxm-80gb", 2).refusal({"method=ring", "context=7"});
    CHECK(says(text, "context of 7 tokens is not a multiple of 4 (two zig-zag chunks on every rank)"));
    CHECK(says(text, "use 8"));
}
USER_CASE("C47", "UPipe head groups: 4 stages of Llama-3-8B, 8 of Qwen3-32B, none of 28 heads over 8") {
    const Recipe llama = CaseBed().recipe({"method=upipe", "context=1M", "ulysses=8"});
    CHECK(llama.heads_per_stage == 8);
    CHECK(CaseBed().model.heads / llama.heads_per_stage == 4);
    const CaseBed qwen = CaseBed().of("qwen3-32b");
    CHECK(qwen.model.heads / qwen.recipe({"method=upipe", "context=1M", "ulysses=8"}).heads_per_stage == 8);
    CHECK(says(CaseBed().of("qwen2.5-7b").refusal({"method=upipe", "context=1M", "ulysses=8"}), "28 heads"));
}
USER_CASE("C48", "windows and linear attention are refused by name") {
    const auto refusals = [](const std::string& path) { return load_model_file(path).refusals; };
    const std::vector<std::string> gpt = refusals(std::string(HEADROOM_TEST_DATA) + "/hf-configs/gpt-oss-20b.json");
    CHECK(std::any_of(gpt.begin(), gpt.end(),
                      [](const auto& text) { return says(text, "12 of 24 layers use a 128-token"); }));
    const TemporaryDirectory scratch;
    std::string types;
    for (int i = 0; i < 8; ++i)
        types += std::string(i > 0 ? ", " : "") + (i % 4 == 3 ? "\"full_attention\"" : "\"linear_attention\"");
    const std::vector<std::string> hybrid = refusals(scratch.write(
        "config.json", R"({"architectures": ["Qwen3NextForCausalLM"], "hidden_size": 64, "intermediate_size": 128,
        "num_hidden_layers": 8, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16, "vocab_size": 100,
        "layer_types": [)" +
                           types + "]}"));
    CHECK(std::any_of(hybrid.begin(), hybrid.end(), [](const auto& text) { return says(text, "6 of 8 layers"); }));
}
USER_CASE("C50", "two KV heads: larger degrees replicate them, and odd ones are named") {
    const CaseBed bed = heads(32, 2);
    CHECK(valid_ulysses_degrees(bed.model) == std::vector<int>{1, 2, 4, 8, 16, 32});
    CHECK(workload(bed, {"method=ulysses", "context=64K", "ulysses=8"}).kv_heads == 8);
}
USER_CASE("C51", "latent attention is refused rather than given a head size of hidden / heads") {
    const ModelFile model = load_model_file(std::string(HEADROOM_TEST_DATA) + "/hf-configs/DeepSeek-V3.json");
    CHECK(std::any_of(model.refusals.begin(), model.refusals.end(),
                      [](const auto& text) { return says(text, "latent"); }));
}
USER_CASE("C53", "head_dim 8 is flagged") {
    CaseBed bed;
    bed.of(model_of("{base: llama3-8b, layers: 24, hidden: 128, heads: 16, kv_heads: 16, head_dim: 8}"));
    const Plan plan = bed.on("a100-sxm-80gb", 4).plan({"method=ring", "context=128K", "attention_kernel=fa2"});
    CHECK(std::any_of(plan.warnings.begin(), plan.warnings.end(),
                      [](const auto& text) { return says(text, "head_dim 8"); }));
}
USER_CASE("C54", "24 query and 6 KV heads: degree 4 fails the KV rule, 12 replicates twice") {
    const CaseBed bed = heads(24, 6).on("h100-sxm-80gb", 24);
    const std::string text = bed.refusal({"method=ulysses", "context=768K", "ulysses=4"});
    CHECK(says(text, "6 KV heads and ulysses degree 4: one must divide the other"));
    CHECK(workload(bed, {"method=ulysses", "context=768K", "ulysses=12"}).kv_heads == 12);
}
USER_CASE("C57", "head sizes that kernels do not take") {
    const auto custom = [](const std::string& sizes) {
        return model_of(
            "{architectures: [LlamaForCausalLM], intermediate_size: 2048, num_hidden_layers: 2, "
            "num_key_value_heads: 16, num_attention_heads: 16, vocab_size: 1000, " +
            sizes + "}");
    };
    CHECK_THROWS_WITH_AS(custom("hidden_size: 1000"), doctest::Contains("not divisible by num_attention_heads 16"),
                         Error);
    const auto warned = [](const Transformer& model, const std::string& part) {
        const std::vector<std::string> list = CaseBed().of(model).plan({"method=ulysses", "context=64K"}).warnings;
        return std::any_of(list.begin(), list.end(), [&](const auto& text) { return says(text, part); });
    };
    CHECK(warned(custom("hidden_size: 1200"), "head_dim 75 is not a multiple of 8"));
    CHECK(warned(custom("hidden_size: 1024, head_dim: 512"), "head_dim 512 is beyond the 256"));
    CHECK_FALSE(warned(custom("hidden_size: 4096"), "head_dim"));
}
USER_CASE("C58", "when nothing fits: need and budget by part, and what would fit") {
    const Outcome outcome = run_headroom({"plan", "--method", "ulysses", "--context", "4M"});
    CHECK(outcome.status == 0);
    CHECK(says(outcome.out, "does not fit: "));
    CHECK(says(outcome.out, "budget 74.43 = 79.10 capacity - 0.60 CUDA context"));
    CHECK(says(outcome.out, "Longest context that fits with this recipe: 3.6"));
    CHECK(says(outcome.out, "Fewest nodes on which it fits: 2 (16 GPUs)."));
    CHECK(says(run_headroom({"plan", "--method", "ulysses", "--context", "4M", "--nodes", "2"}).out, "fits: "));
}
USER_CASE("C122", "a gain is a change of the step's peak, with its share of the peak") {
    const Outcome outcome = run_headroom(
        {"what-if", "--method", "upipe", "--context", "3M", "--change", "method=ulysses", "--format", "json"});
    const std::string text =
        run_headroom({"what-if", "--method", "upipe", "--context", "3M", "--change", "method=ulysses"}).out;
    const auto json = nlohmann::json::parse(outcome.out);
    const double before = json["base"]["device_memory"]["peak_bytes"];
    const double after = json["variants"][0]["plan"]["device_memory"]["peak_bytes"];
    CHECK(says(text, fmt::format("the step's peak {:+.2f} GiB ({:+.1f}%)", (after - before) / static_cast<double>(gibi),
                                 100 * (after / before - 1))));
    CHECK(says(run_headroom({"recommend", "--context", "3M", "--method", "upipe"}).out, "changes of the whole step"));
}
USER_CASE("C59", "products that do not match the GPUs") {
    const std::vector<std::string> asked{"method=usp", "context=1M", "ulysses=8", "ring=2"};
    CHECK(says(CaseBed().refusal(asked), "16 ranks asked, 8 GPUs there (ulysses 8 x ring 2 = 16)"));
    CHECK(says(CaseBed().on("h100-sxm-80gb", 24).refusal(asked), "24 GPUs are not a multiple of 16"));
    const CaseBed four = CaseBed().on("h100-sxm-80gb", 32);
    CHECK(four.cluster.gpus() / four.recipe(asked).context_parallel() == 2);  // data parallel
}

}  // namespace headroom
