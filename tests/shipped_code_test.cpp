// SPDX-License-Identifier: Apache-2.0
// What a code brings by itself, and one answer everywhere to what it does not run: the verdict is of memory, and a
// remark says that the shipped code ends before it.
#include "models/shipped.hpp"

#include <doctest/doctest.h>

#include <nlohmann/json.hpp>
#include <random>
#include <set>

#include "configs/launch.hpp"
#include "configs/load.hpp"
#include "models/error.hpp"
#include "tests/json_of.hpp"
#include "tests/run_headroom.hpp"

namespace headroom {

namespace {

using Json = nlohmann::ordered_json;

template <class T>
T any(std::mt19937& random, std::initializer_list<T> values) {
    return values.begin()[std::uniform_int_distribution<std::size_t>(0, values.size() - 1)(random)];
}

Settings any_settings(std::mt19937& random) {
    Settings said;
    using enum Implementation;
    const auto [method, code] =
        any(random, {std::pair{Method::ulysses, alst}, std::pair{Method::native, torchtitan},
                     std::pair{Method::fpdt, megatron_deepspeed}, std::pair{Method::upipe, untied_ulysses}});
    said.method = method;
    said.implementation = code;
    said.context = Tokens{mebi};
    const auto sometimes = [&] { return any(random, {0, 0, 1}) == 1; };
    const auto tiling = [&] {
        return any(random, {Tiling{}, Tiling{Tiling::Kind::automatic, 0}, Tiling{Tiling::Kind::tokens, 2048}});
    };
    if (sometimes()) said.checkpointing = Checkpointing::none;
    if (sometimes() && !said.checkpointing) {
        said.offload_block_inputs = any(random, {HostPlace::none, HostPlace::pinned, HostPlace::pageable});
    }
    if (sometimes()) said.tiling_norm = tiling();
    if (sometimes()) said.tiling_mlp = tiling();
    if (sometimes()) said.tiling_loss = tiling();
    if (sometimes()) said.sharding_strategy = static_cast<ShardingStrategy>(any(random, {0, 1, 2, 3, 4}));
    if (sometimes()) said.sharding_degree = any(random, {2, 4, 8});
    if (sometimes()) said.offload_optimizer = any(random, {true, false});
    if (sometimes()) said.offload_parameters = any(random, {true, false});
    if (sometimes()) said.precision_compute = any(random, {NumberFormat::bf16, NumberFormat::fp16});
    if (sometimes()) said.precision_parameters = any(random, {NumberFormat::bf16, NumberFormat::fp32});
    if (sometimes()) said.precision_optimizer = any(random, {NumberFormat::bf16, NumberFormat::fp32});
    return said;
}

const std::string fpdt_reason = "megatron-deepspeed's FPDT scripts fail beyond 4,194,304 tokens";

}  // namespace

TEST_CASE("alst means ArcticTraining's recipe below what is said") {
    const Json plan = json_of({"plan", "--method", "ulysses", "--implementation", "alst", "--context", "2M"});
    const Json& recipe = plan["recipe"];
    CHECK(recipe["sharding"]["strategy"] == "zero3");
    CHECK(recipe["offload"]["block_inputs"] == "pageable");
    CHECK(recipe["offload"]["optimizer"] == true);
    CHECK(recipe["tiling"]["norm"] == "off");
    CHECK(recipe["tiling"]["mlp"] == "auto");
    CHECK(recipe["attention_kernel"] == "fa2");
    CHECK(plan["beyond_shipped_code"].is_null());
    const Json said = json_of({"plan", "--method", "ulysses", "--implementation", "alst", "--context", "2M", "--set",
                               "offload.block_inputs=pinned", "--set", "tiling.norm=auto"});
    CHECK(said["beyond_shipped_code"] == "alst has no such offload.block_inputs, tiling.norm");
    CHECK(said["recipe"]["offload"]["block_inputs"] == "pinned");
    CHECK(contains(said["warnings"].dump(), "beyond the shipped code: alst has no such offload.block_inputs"));
    const Outcome launch =
        run_headroom({"launch", "--method", "ulysses", "--implementation", "alst", "--context", "2M"});
    CHECK_FALSE(contains(launch.err, "not expressed"));
}

TEST_CASE("lean and untied-ulysses bring nothing, and no checkpointing means no offload of its inputs") {
    CHECK(shipped_settings(Implementation::lean) == Settings{});
    CHECK(shipped_settings(Implementation::untied_ulysses) == Settings{});
    for (const char* code : {"alst", "untied-ulysses"}) {
        const Json plan = json_of({"plan", "--method", "ulysses", "--implementation", code, "--context", "64K", "--set",
                                   "checkpointing=none"});
        CHECK(plan["recipe"]["offload"]["block_inputs"] == "none");
    }
}

TEST_CASE("what a code cannot express is what its launch files do not say") {
    const Transformer model = load_model("llama3-8b");
    const Cluster cluster = load_cluster("h100-sxm-80gb");
    std::mt19937 random(7);
    int beyond = 0;
    for (int i = 0; i < 600; ++i) {
        const Settings said = any_settings(random);
        Recipe recipe;
        try {
            recipe = resolve(said, published_recipe(*said.method), model, cluster);
        } catch (const Error&) {
            continue;
        }
        if (recipe.implementation == Implementation::untied_ulysses) {
            CHECK(unexpressed(recipe, cluster).empty());
            continue;
        }
        std::set<std::string> keys;
        for (const std::string& what :
             launch_files(launch_target(recipe.implementation), recipe, model, cluster).not_expressed) {
            keys.insert(what.substr(0, what.find('=')));
        }
        const std::vector<std::string> found = unexpressed(recipe, cluster);
        CAPTURE(to_string(recipe.implementation));
        CHECK(std::set<std::string>(found.begin(), found.end()) == keys);
        beyond += keys.empty() ? 0 : 1;
    }
    CHECK(beyond > 50);
}

TEST_CASE("FPDT beyond its scripts: memory's verdict with one remark in every report") {
    const std::vector<std::string> question{"--method", "fpdt", "--context", "5M"};
    const auto asked = [&](std::vector<std::string> words) {
        words.insert(words.begin() + 1, question.begin(), question.end());
        return run_headroom(words);
    };
    const Outcome plan = asked({"plan", "--require-fit"});
    CHECK(plan.status == 0);
    CHECK(plan.out.starts_with("fits: "));
    CHECK(contains(plan.out, "warning: beyond the shipped code: " + fpdt_reason.substr(0, 40)));
    const Outcome csv = asked({"plan", "--format", "csv"});
    CHECK(contains(csv.out, ",fits,,\"" + fpdt_reason));
    CHECK(contains(asked({"what-if", "--change", "batch=1"}).out, "beyond the shipped code: "));
    const Outcome rows = asked({"sweep", "--format", "jsonl"});
    const Json row = Json::parse(rows.out);
    CHECK(row["status"] == "fits");
    CHECK(row["reason"].is_null());
    CHECK(row["beyond_shipped_code"].get<std::string>().starts_with(fpdt_reason));
    const Json longest = json_of({"max-context", "--method", "fpdt"})["methods"][0];
    CHECK(longest["max_context_tokens"] == 4194304);
    CHECK(longest["max_context_tokens_by_memory"] > 5242880);
    CHECK(contains(longest["limited_by"].get<std::string>(), "memory alone would allow 5,"));
    CHECK(longest["plan"]["beyond_shipped_code"].is_null());
    const Outcome only = asked({"recommend"});
    CHECK(only.status == 0);
    CHECK(contains(only.out, "No recipe that the shipped code runs."));
    CHECK(asked({"recommend", "--require-fit"}).status == 3);
    const Json all = json_of({"recommend", "--context", "5M", "--top", "1"});
    const Json& miss = all["near_misses"][0];
    CHECK(miss["recipe"]["method"] == "fpdt");
    CHECK(miss["device_short_bytes"] == 0);
    CHECK(miss["fits_up_to_tokens"] == 4194304);
    CHECK(miss["beyond_shipped_code"].get<std::string>().starts_with(fpdt_reason));
}

TEST_CASE("UPipe with other stages than its code's: the same remark everywhere") {
    const std::string reason = "the UPipe code runs 8 heads per stage, its Ulysses degree, not 16";
    const std::vector<std::string> stages{"--method", "upipe", "--heads-per-stage", "16"};
    const auto asked = [&](std::vector<std::string> words) {
        words.insert(words.begin() + 1, stages.begin(), stages.end());
        return words;
    };
    CHECK(json_of(asked({"plan", "--context", "1M"}))["beyond_shipped_code"] == reason);
    const Json longest = json_of(asked({"max-context"}))["methods"][0];
    CHECK(longest["plan"]["beyond_shipped_code"] == reason);
    CHECK(longest["max_context_tokens"] == longest["max_context_tokens_by_memory"]);
    CHECK(contains(run_headroom(asked({"max-context"})).out, "upipe: beyond the shipped code: the UPipe code runs 8"));
    const Outcome rows = run_headroom(asked({"sweep", "--context", "1M"}));
    CHECK(contains(rows.out, ",fits,,\"" + reason + "\","));
    const Outcome lean = run_headroom(asked({"plan", "--context", "1M", "--implementation", "lean"}));
    CHECK_FALSE(contains(lean.out, "beyond the shipped code"));
}

}  // namespace headroom
