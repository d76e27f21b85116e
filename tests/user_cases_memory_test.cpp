// SPDX-License-Identifier: Apache-2.0
// User cases of kind a: memory and longest contexts that people measured. Bounds are those the cases ask for; what is
// outside them stands in user_cases_test.cpp with its error.
#include <algorithm>

#include "models/training_step.hpp"
#include "planner/validate.hpp"
#include "tests/run_headroom.hpp"
#include "tests/user_cases.hpp"

namespace headroom {
namespace {

std::vector<std::string> without_context(std::vector<std::string> assignments) {
    std::erase_if(assignments, [](const std::string& text) { return text.starts_with("context="); });
    return assignments;
}

/// One H200, states on the host, as ArcticTraining's single-GPU recipes.
CaseBed one_h200() { return CaseBed().of("llama3.1-8b").on("h200", 1); }
std::vector<std::string> rung(const std::string& context, std::vector<std::string> more) {
    more.insert(more.end(), {"ulysses=1", "offload.parameters=true"});
    return alst(context, more);
}

/// 70B with everything offloaded and tiled, on nodes of 1.9 TB.
CaseBed large_nodes(int gpus) {
    CaseBed bed;
    bed.of("llama3.1-70b").on("h100-sxm-80gb", gpus);
    bed.cluster.host_memory = Bytes{1'900'000'000'000};
    return bed;
}
std::vector<std::string> large(const std::string& context) {
    return alst(context,
                {"offload.block_inputs=pageable", "tiling.mlp=auto", "tiling.loss=auto", "attention_kernel=fa2"});
}

Measurement measurement(const std::string& id, const CaseBed& bed, const std::vector<std::string>& assignments,
                        const Metric& metric, double value) {
    Measurement run;
    run.id = id;
    run.model = bed.model;
    run.model_name = bed.model.name;
    run.cluster = bed.cluster;
    run.cluster_name = bed.cluster.name;
    run.said = settings_of(assignments);
    run.published = published_recipe(run.said.method.value());
    run.metric = metric;
    run.value = value;
    return run;
}
const Metric allocated_gib{Figure::peak_allocated, "peak_allocated_gib", static_cast<double>(gibi)};
const Metric longest{Figure::max_context, "max_context", 1};

bool noted(const Comparison& row, const std::string& part) {
    return std::any_of(row.notes.begin(), row.notes.end(), [&](const auto& note) { return says(note, part); });
}

}  // namespace

USER_CASE("C01", "ALST on one H200: the ladder, and the order of its gains") {
    struct Rung {
        const char* context;
        const char* more_than_fits;  ///< 1.3 times as long
        double used;
        std::vector<std::string> settings;
    };
    const Rung rungs[]{
        {"65000", "84500", 137.36e9, {}},
        {"300000", "390000", 134.96e9, {"tiling.loss=auto"}},
        {"650000", "845000", 126.81e9, {"tiling.loss=auto", "offload.block_inputs=pageable"}},
        {"1200000", "1560000", 136.15e9, {"tiling.loss=auto", "offload.block_inputs=pageable", "tiling.mlp=auto"}},
    };
    for (const Rung& step : rungs) {
        CAPTURE(step.context);
        const Plan plan = one_h200().plan(rung(step.context, step.settings));
        CHECK(plan.fits);
        const double used = static_cast<double>((plan.device.peak_reserved + plan.device.outside_allocator).value);
        CHECK(std::abs(error_percent(used, step.used)) < 10);
        CHECK_FALSE(one_h200().plan(rung(step.more_than_fits, step.settings)).fits);
    }
    const std::vector<std::string> all{"tiling.loss=auto", "offload.block_inputs=pageable", "tiling.mlp=auto"};
    // 4.6 times by the loss, 2.2 by offload, 1.85 by the MLP: in this order.
    double longest_at[4];
    for (std::size_t i = 0; i < 4; ++i) {
        const std::vector<std::string> settings(all.begin(), all.begin() + static_cast<std::ptrdiff_t>(i));
        longest_at[i] = static_cast<double>(one_h200().longest(without_context(rung("1", settings))).context.value);
    }
    CHECK(longest_at[1] / longest_at[0] > longest_at[2] / longest_at[1]);
    CHECK(longest_at[2] / longest_at[1] > longest_at[3] / longest_at[2]);
    CHECK(longest_at[3] / longest_at[2] > 1.5);
    CHECK(in_gib(load_cluster("h200").device_memory) == doctest::Approx(139.8).epsilon(0.001));
}
USER_CASE("C04", "70B over four nodes: host memory stops it, not the GPU") {
    const Plan four = large_nodes(32).plan(large("4000000"));
    CHECK(four.fits);
    // 80 * 4e6 * 8192 * 2 / 4 = 1.311e12 for block inputs, and master and moments of 70.55e9 * 12 / 4 = 0.212e12.
    CHECK(four.host.pageable_per_node.value == 1'310'720'000'000);
    CHECK(four.host.peak_per_node.value > 1'500'000'000'000);
    const double used = static_cast<double>((four.device.peak_reserved + four.device.outside_allocator).value);
    CHECK(std::abs(error_percent(used, 47.70e9)) < 10);
    CHECK(std::any_of(four.warnings.begin(), four.warnings.end(),
                      [](const auto& text) { return says(text, "host memory is a warning zone"); }));
    const MaxContext found = large_nodes(32).longest(without_context(large("1")));
    CHECK(says(found.limited_by, "host memory"));
    const Plan six = large_nodes(32).plan(large("6000000"));
    CHECK_FALSE(six.host.fits);
    CHECK(six.device.fits);
    const Plan eight_nodes = large_nodes(64).plan(large("10000000"));
    CHECK(std::abs(error_percent(static_cast<double>(eight_nodes.host.peak_per_node.value), 1.74e12)) < 5);
}
USER_CASE("C05", "8K to 256K on one GPU each: growth within 3 %, the same on H200 and B200") {
    const std::vector<std::string> more{"ulysses=1", "tiling.loss=auto", "allocator.expandable_segments=false"};
    const auto reserved = [&](const char* gpu, const char* context) {
        return CaseBed().of("llama3.1-8b").on(gpu, 8).plan(alst(context, more)).device.peak_reserved;
    };
    // 16.3, 37.5, 66.5 and 124.5 GiB at 8K, 64K, 128K and 256K
    CHECK(std::abs(error_percent(in_gib(reserved("h200", "256K") - reserved("h200", "64K")), 124.5 - 37.5)) < 3);
    CHECK(std::abs(error_percent(in_gib(reserved("h200", "128K") - reserved("h200", "8K")), 66.5 - 16.3)) < 3);
    for (const char* context : {"8K", "64K", "256K"}) {
        CHECK(reserved("h200", context) == reserved("b200", context));
    }
    const MaxContext found = CaseBed().of("llama3.1-8b").on("h200", 8).longest(without_context(alst("1", more)));
    CHECK(found.context.value >= 256 * 1024);
    CHECK(found.context.value <= 330 * 1024);
}
USER_CASE("C06", "full logits: 96K fits on four H100, and the slope is that of the logits") {
    const CaseBed bed = CaseBed().of("qwen3-4b").on("h100-sxm-80gb", 4);
    const auto peak = [&](const char* context) {
        return bed.plan(alst(context, {"attention_kernel=fa2"})).device.peak;
    };
    CHECK(bed.plan(alst("96K", {"attention_kernel=fa2"})).fits);
    // Per local token, without 36 block inputs of 2560 * 2 bytes, over 151,936 logits: eager PyTorch holds three fp32
    // copies (log-probabilities, their gradient, the logits' gradient) at once.
    const double slope = static_cast<double>((peak("96K") - peak("32K")).value) / (16.0 * 1024);
    const double per_element = (slope - 36 * 2560 * 2) / 151'936;
    CHECK(per_element == doctest::Approx(12).epsilon(0.02));
}
USER_CASE("C10", "torchtitan with context parallel 2, 4, 8: equal peaks, on a card of its own") {
    CaseBed bed;
    bed.of("llama3.1-8b");
    bed.cluster = cluster_of("{base: h100-sxm-80gb, device_memory: 95GiB, memory_bandwidth: 2.4TB/s}");
    CHECK(in_gib(bed.cluster.device_memory) == 95);
    double least = 1e9, most = 0;
    for (const char* degree : {"1", "2", "4", "8"}) {
        const std::int64_t context = 32768 * std::atoi(degree);
        const Plan plan =
            bed.plan({"method=native", "implementation=torchtitan", std::string("ring=") + degree,
                      "context=" + std::to_string(context), "tiling.loss=off", "offload.block_inputs=none"});
        CHECK(plan.fits);
        const double reserved = in_gib(plan.device.peak_reserved);  // what torchtitan logs
        CHECK(std::abs(error_percent(reserved, 84)) < 5);
        least = std::min(least, reserved);
        most = std::max(most, reserved);
    }
    CHECK(most / least < 1.05);
}
USER_CASE("C11", "8 against 128 GPUs: the states' share") {
    const auto states = [](int gpus) {
        return paper_split(CaseBed()
                               .of("llama3.1-8b")
                               .on("h100-sxm-80gb", gpus)
                               .plan({"method=native", "implementation=torchtitan", "ring=1", "context=8K", "batch=2",
                                      "offload.block_inputs=none"}))
            .states;
    };
    // 8.03e9 * 16 * (1/8 - 1/128) = 14.0 GiB; 15.4 were seen.
    CHECK(in_gib(states(8) - states(128)) == doctest::Approx(14.02).epsilon(0.001));
}
USER_CASE("C13", "Llama-2-7B at 700K on eight A100 fits") {
    const Plan plan = CaseBed()
                          .of("llama2-7b")
                          .on("a100-sxm-80gb")
                          .plan({"method=ring", "context=716800", "attention_kernel=fa2", "sharding.strategy=zero3",
                                 "offload.optimizer=true", "offload.parameters=true", "offload.block_inputs=none",
                                 "tiling.norm=off", "tiling.mlp=off", "tiling.loss=off"});
    CHECK(plan.fits);
    CHECK(plan.device.peak > plan.device.usable * 7 / 10);  // not by a factor
}
USER_CASE("C15", "five heads cannot be spread over eight ranks") {
    CaseBed bed;
    bed.of(model_of("{base: llama3-8b, heads: 5, kv_heads: 5}"));
    CHECK(says(bed.refusal({"method=ulysses", "context=64K", "ulysses=8"}), "ulysses degree 8 exceeds 5 heads"));
}
USER_CASE("C20", "a model cut to 12 layers") {
    const Transformer cut = model_of("{base: llama3-70b, layers: 12}");
    CHECK(cut.layers == 12);
    // 12 * 855,654,400 + 2 * 128256 * 8192 + 8192
    CHECK(count_parameters(cut).total() == 12'369'207'296);
}
USER_CASE("C22", "5M on eight H100 with UPipe, not with Ulysses; 87.5 % of the intermediates of 64 heads") {
    CHECK(CaseBed().plan({"method=upipe", "context=5M", "ulysses=8"}).fits);
    CHECK_FALSE(CaseBed().plan({"method=ulysses", "context=5M"}).fits);
    // Stages of 8 of 64 heads hold an eighth of Q, K, V and output: 1 - 8/64 saved.
    const CaseBed qwen = CaseBed().of("upipe-qwen3-32b");
    const Recipe recipe = qwen.recipe({"method=upipe", "context=1M", "ulysses=8"});
    CHECK(1 - static_cast<double>(recipe.heads_per_stage) / static_cast<double>(qwen.model.heads) == 0.875);
    std::int64_t largest_exchange[2] = {0, 0};
    int index = 0;
    for (const char* method : {"method=upipe", "method=ulysses"}) {
        Schedule schedule;
        build_training_step(make_workload(qwen.model, qwen.cluster, qwen.recipe({method, "context=1M", "ulysses=8"})),
                            schedule);
        for (const Event& event : schedule.events) {
            const bool exchange =
                event.kind == EventKind::collective && event.collective.kind == CollectiveKind::all_to_all;
            if (exchange) largest_exchange[index] = std::max(largest_exchange[index], event.collective.bytes);
        }
        ++index;
    }
    CHECK(largest_exchange[0] * 8 == largest_exchange[1]);
}
USER_CASE("C23", "70B at 128K over eight: the boundaries of full checkpointing") {
    // 80 * 16,384 tokens * 8192 * 2 bytes = 20 GiB without tensor parallelism (2.5 GiB over TP 8), here on the host.
    const Plan plan =
        CaseBed()
            .of("llama3.1-70b")
            .plan({"method=ulysses", "context=128K", "implementation=lean", "offload.block_inputs=pageable"});
    CHECK(in_gib(plan.host.pageable_per_node) == 8 * 20.0);
}
USER_CASE("C24", "sequence parallelism that has no effect is noticed") {
    CaseBed one, two;
    for (CaseBed* bed : {&one, &two}) {
        bed->of("qwen3-1.7b");
        bed->cluster.device_memory = Bytes{24 * gibi};
    }
    one.cluster.gpus_per_node = 1;
    two.cluster.gpus_per_node = 2;
    const auto settings = [](const char* degree) {
        return without_context(alst("1", {std::string("ulysses=") + degree}));
    };
    CHECK(two.longest(settings("2")).context.value > one.longest(settings("1")).context.value * 3 / 2);

    const Validation validation = validate({measurement("SP1", one, alst("5K", {"ulysses=1"}), longest, 5120),
                                            measurement("SP2", two, alst("5K", {"ulysses=2"}), longest, 5120)});
    CHECK(noted(validation.comparisons[1], "no longer than SP1 on 1 rank: sequence parallelism had no effect"));
    CHECK(validation.comparisons[0].notes.empty());
    const Validation good = validate({measurement("SP1", one, alst("5K", {"ulysses=1"}), longest, 5120),
                                      measurement("SP2", two, alst("5K", {"ulysses=2"}), longest, 10240)});
    CHECK(good.comparisons[1].notes.empty());
}
USER_CASE("C27", "a chunked loss costs by tokens of the chunk and by the table's gradient") {
    // Bytes at the loss: alpha * chunk * V + beta * V * D, whatever the chunk.
    const auto loss = [](std::int64_t chunk) {
        const CaseBed bed = CaseBed().on("h100-sxm-80gb", 1);
        const Recipe recipe = bed.recipe({"method=ulysses", "context=64K", "tiling.loss=" + std::to_string(chunk)});
        Schedule schedule;
        build_training_step(make_workload(bed.model, bed.cluster, recipe), schedule);
        std::int64_t sum = 0;
        for (const Segment& segment : schedule.segments) {
            if (std::string(segment.name) != "loss") continue;
            for_each_event(schedule, segment, [&](const Event& event) {
                const std::string name = event.name;
                const bool counts =
                    event.kind == EventKind::allocate && (says(name, "logits") || says(name, "gradient of head"));
                if (counts) sum += event.bytes;
            });
        }
        return sum;
    };
    const std::int64_t vocabulary = 128256, hidden = 4096;
    CHECK(loss(2048) - loss(1024) == 2 * 1024 * vocabulary);             // alpha: 16-bit logits
    CHECK(loss(128) - 2 * 128 * vocabulary == 8 * vocabulary * hidden);  // beta: 2 + 2 + 4 bytes
    CHECK(loss(128) > 10 * 2 * 128 * vocabulary);                        // tiny chunks: the table decides
}
USER_CASE("C29", "the vocabulary decides what logits cost") {
    const auto logits = [](const Transformer& model) {
        return part_bytes(CaseBed().on("h100-sxm-80gb", 1).of(model).plan(alst("4K", {"ulysses=1"})),
                          "log-probabilities");
    };
    const Transformer half = model_of(
        "{architectures: [Qwen2ForCausalLM], hidden_size: 896, intermediate_size: 4864, num_hidden_layers: 24, "
        "num_attention_heads: 14, num_key_value_heads: 2, vocab_size: 151936, tie_word_embeddings: true, "
        "use_sliding_window: false, sliding_window: null}");
    CHECK(logits(half).value == std::int64_t{4096} * 151936 * 4);
    CHECK(logits(half) > logits(load_model("llama3.2-1b")));  // though the model is half the size
    // Gemma-3-12B at 14K: 14,336 * 262,208 * 4 bytes = 14.0 GiB a copy
    const Transformer gemma = model_of("{base: llama3-8b, vocabulary: 262208}");
    const Plan plan = CaseBed().on("h100-sxm-80gb", 1).of(gemma).plan(alst("14336", {"ulysses=1"}));
    CHECK(in_gib(part_bytes(plan, "log-probabilities")) == doctest::Approx(14.0).epsilon(0.001));
}
USER_CASE("C30", "79.1 GiB of an 80 GB card, and what context parallelism cannot shrink") {
    CHECK(in_gib(load_cluster("h100-sxm-80gb").device_memory) == doctest::Approx(73.32 / 0.927).epsilon(0.001));
    const auto states = [](const char* degree) {
        return part_bytes(CaseBed().plan({"method=ring", std::string("ring=") + degree, "context=16K"}),
                          "optimizer state");
    };
    CHECK(states("1") == states("8"));
}
USER_CASE("C31", "fp32 log-probabilities: exact sizes, and more than one at once") {
    struct Block {
        const char* vocabulary;
        std::int64_t tokens;
        double gib;
    };
    for (const Block& block : {Block{"248320", 8192, 7.58}, {"131072", 20357, 9.94}, {"76032", 205302, 58.15}}) {
        CAPTURE(block.vocabulary);
        const Transformer model = model_of(std::string("{base: llama3-8b, vocabulary: ") + block.vocabulary + "}");
        CaseBed bed;
        bed.of(model).on("h200", 1);
        const Plan plan = bed.plan(alst(std::to_string(block.tokens), {"ulysses=1"}));
        CHECK(in_gib(part_bytes(plan, "log-probabilities")) == doctest::Approx(block.gib).epsilon(0.001));
        CHECK(part_bytes(plan, "gradient of l") >= 2 * part_bytes(plan, "log-probabilities"));
    }
    // "Which tensor is this?": the third report's 58.15 GiB are 205,302 rows of a vocabulary of 76,032 in fp32.
    const TemporaryDirectory directory;
    const std::string model =
        directory.write("config.json", R"({"model_type": "llama", "hidden_size": 4096, "intermediate_size": 14336,
                           "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 8,
                           "vocab_size": 76032, "tie_word_embeddings": false})");
    const auto which = [&](const char* size, const char* context) {
        return run_headroom({"plan", "--model", model, "--gpus", "1", "--method", "ulysses", "--implementation", "alst",
                             "--set", "tiling.loss=off", "--set", "tiling.norm=off", "--context", context,
                             "--which-tensor", size})
            .out;
    };
    CHECK(says(which("58.15 GiB", "64K"), "76,032      4        205,285 to 205,319"));
    CHECK(says(which("58.15GiB", "205302"), "log-probabilities, fp32"));
    CHECK(says(which("58.15GiB", "64K"), "None of this step"));
}
USER_CASE("C32", "32K x 128K logits: 8 GiB in 16 bits, and what an eager loss makes of them") {
    const Transformer model = model_of("{base: llama3-8b, vocabulary: 131072}");
    const auto peak = [&](const char* tiling) {
        return CaseBed().of(model).on("h100-sxm-80gb", 1).plan(alst("32K", {"ulysses=1", tiling})).device.peak;
    };
    const std::int64_t one = std::int64_t{32768} * 131072 * 2;
    CHECK(in_gib(Bytes{one}) == 8);
    // Three fp32 copies are six of them; in chunks of 1,024 at most two chunks are left.
    CHECK((peak("tiling.loss=off") - peak("tiling.loss=1024")).value > 5 * one / 2);
    // The price stands beside the gain, for smaller chunks a larger one.
    const std::string text =
        run_headroom({"what-if", "--model", "llama3.2-1b", "--gpus", "1", "--method", "ulysses", "--context", "128K",
                      "--change", "tiling.loss=65536", "--change", "tiling.loss=512"})
            .out;
    CHECK(says(text, "(+32.1%)"));  // 65,536 rows of logits, and 0.4 % faster
    CHECK(says(text, "+0.4%"));
    CHECK(says(text, "-3.4%"));  // 512 rows
}
USER_CASE("C34", "a larger model that is cheaper in the same setting is inconsistent") {
    const std::vector<std::string> setting = alst("32K", {"ulysses=4"});
    const Validation validation =
        validate({measurement("8B", CaseBed().of("qwen3-8b").on("h200", 4), setting, allocated_gib, 90),
                  measurement("14B", CaseBed().of("qwen3-14b").on("h200", 4), setting, allocated_gib, 50)});
    CHECK(noted(validation.comparisons[0], "inconsistent with 14B"));
    CHECK(noted(validation.comparisons[0], "loss and logits settings, offload and swapping"));
    const Validation sound =
        validate({measurement("8B", CaseBed().of("qwen3-8b").on("h200", 4), setting, allocated_gib, 50),
                  measurement("14B", CaseBed().of("qwen3-14b").on("h200", 4), setting, allocated_gib, 70)});
    CHECK(sound.comparisons[0].notes.empty());
}
USER_CASE("C56", "inputs that were split twice, or not at all") {
    const std::vector<std::string> setting{"method=ulysses", "context=1M", "offload.block_inputs=none"};
    const Plan plan = CaseBed().plan(setting);
    const Bytes activations = activations_at_peak(plan);
    const Bytes fixed = plan.device.peak - activations;
    const auto note = [&](Bytes measured) {
        const Validation validation =
            validate({measurement("run", CaseBed(), setting, allocated_gib, in_gib(measured))});
        return validation.comparisons[0].notes.empty() ? std::string() : validation.comparisons[0].notes[0];
    };
    CHECK(says(note(fixed + activations / 8), "are inputs split twice?"));
    CHECK(says(note(fixed + 8 * activations), "was the sequence split at all?"));
    CHECK(note(fixed + activations).empty());
    CHECK(note(fixed + activations / 3).empty());
}

}  // namespace headroom
