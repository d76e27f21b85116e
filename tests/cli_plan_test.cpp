// SPDX-License-Identifier: Apache-2.0
// What `headroom plan` prints: the names and the sums that people and programs rely on.
#include <doctest/doctest.h>

#include <nlohmann/json.hpp>

#include "tests/run_headroom.hpp"

namespace headroom {

namespace {

using Words = std::vector<std::string>;
using Json = nlohmann::ordered_json;

Outcome plan(Words more) {
    more.insert(more.begin(), "plan");
    return run_headroom(more);
}

Json plan_json(Words more) {
    more.insert(more.end(), {"--format", "json"});
    const Outcome outcome = plan(std::move(more));
    CAPTURE(outcome.err);
    REQUIRE(outcome.status == 0);
    return Json::parse(outcome.out);
}

std::int64_t sum(const Json& list) {
    std::int64_t total = 0;
    for (const Json& item : list) total += item.at("bytes").get<std::int64_t>();
    return total;
}

}  // namespace

TEST_CASE("the JSON of a plan keeps its names, and its parts make its totals") {
    for (const char* method : {"native", "ring", "ulysses", "usp", "fpdt", "upipe"}) {
        CAPTURE(method);
        const Json json = plan_json({"--method", method, "--context", "1M"});
        CHECK(json.begin().key() == "schema_version");
        CHECK(json["schema_version"] == 1);
        CHECK(json["model"]["name"] == "llama3-8b");
        CHECK(json["model"]["parameters"] == 8'030'261'248);
        CHECK(json["cluster"]["nodes"] == 1);
        CHECK(json["cluster"]["gpus"] == 8);
        CHECK(json["recipe"]["method"] == method);
        CHECK(json["recipe"]["context"] == 1'048'576);
        CHECK(json["recipe"]["ulysses"].get<int>() * json["recipe"]["ring"].get<int>() == 8);
        CHECK(json["recipe"].contains("heads_per_stage") == (json["recipe"]["method"] == "upipe"));
        CHECK(json["recipe"].contains("chunk_tokens") == (json["recipe"]["method"] == "fpdt"));
        CHECK(json["fits"].is_boolean());
        CHECK(!json["verdict"].get<std::string>().empty());
        CHECK(json["warnings"].is_array());

        const Json& device = json["device_memory"];
        CHECK(sum(device["parts"]) == device["peak_bytes"]);
        CHECK(device["usable_bytes"].get<std::int64_t>() + device["outside_allocator_bytes"].get<std::int64_t>() ==
              device["capacity_bytes"]);
        CHECK(device["peak_reserved_bytes"] >= device["peak_bytes"]);
        CHECK(device["rank0_peak_bytes"] <= device["peak_bytes"]);
        CHECK(device["peak_rank"].get<int>() < 8);
        CHECK(!device["phase"].get<std::string>().empty());
        const Json& host = json["host_memory"];
        CHECK(host["fits"] == (host["peak_bytes_per_node"] <= host["usable_bytes_per_node"]));
        CHECK(host["capacity_bytes_per_node"] >= host["usable_bytes_per_node"]);
        CHECK(sum(host["parts"]) == host["peak_bytes_per_node"]);
    }
}

TEST_CASE("the text fits 80 columns, and starts with the verdict") {
    const Json json = plan_json({"--context", "1M"});
    const Outcome outcome = plan({"--context", "1M"});
    CHECK(outcome.status == 0);
    CHECK(outcome.err.empty());
    for (const std::string& line : lines_of(outcome.out)) CHECK(line.size() <= 80);
    CHECK(json["verdict"].get<std::string>().starts_with(lines_of(outcome.out)[0]));
    for (const char* part : {"1,048,576 tokens global (1M), 131,072 per GPU", "8,030,261,248 parameters", "capacity",
                             "usable by the allocator", "margin", "reserved by the allocator", "Host memory per node",
                             "pinned", "pageable"}) {
        CAPTURE(part);
        CHECK(contains(outcome.out, part));
    }
}

TEST_CASE("a plan that does not fit says by how much, keeps its numbers, and fails only when asked to") {
    const Words words{"--context", "64M"};
    const Outcome outcome = plan(words);
    CHECK(outcome.status == 0);
    CHECK(contains(outcome.out, "Short by "));
    CHECK(contains(outcome.out, " capacity"));
    CHECK(contains(outcome.out, "Longest context that fits"));
    const Json json = plan_json(words);
    CHECK(json["fits"] == false);
    CHECK(json["device_memory"]["peak_bytes"] > 0);
    const Outcome strict = plan({"--context", "64M", "--require-fit", "--format", "json"});
    CHECK(strict.status == 3);
    CHECK(Json::parse(strict.out) == json);
    CHECK(plan({"--context", "128K", "--require-fit"}).status == 0);
}

TEST_CASE("CSV is one row of exact integers, inputs first") {
    const Outcome outcome = plan({"--context", "1M", "--format", "csv"});
    const auto lines = lines_of(outcome.out);
    REQUIRE(lines.size() == 2);
    CHECK(lines[0].starts_with("model,parameters,cluster,nodes,gpus,method,context_tokens,"));
    CHECK(lines[0].find(",status,") < lines[0].find(",device_peak_bytes"));
    CHECK(lines[1].starts_with("llama3-8b,8030261248,h100-sxm-80gb,1,8,upipe,1048576,"));
}

TEST_CASE("a flag wins over --recipe, --set too, and both are equal when they agree") {
    const TemporaryDirectory directory;
    const std::string file = directory.write("run.yaml", "method: usp\ncontext: 512K\nulysses: 2\nring: 4\n");
    CHECK(plan_json({"--recipe", file})["recipe"]["ulysses"] == 2);
    const Json flags = plan_json({"--recipe", file, "--ulysses", "4", "--ring", "2"});
    const Json sets = plan_json({"--recipe", file, "--set", "ulysses=4", "--set", "ring=2"});
    CHECK(flags == sets);
    CHECK(flags["recipe"]["context"] == 524'288);
    CHECK(flags["recipe"]["ulysses"] == 4);
    CHECK(plan_json({"--recipe", file, "--ulysses", "4", "--ring", "2", "--set", "ulysses=4"}) == flags);
}

TEST_CASE("the recipe of a plan is a recipe file of the same plan") {
    const TemporaryDirectory directory;
    for (const char* method : {"native", "fpdt", "upipe"}) {
        const Json json = plan_json({"--method", method, "--context", "256K"});
        const std::string file = directory.write("again.yaml", json["recipe"].dump());
        CHECK(plan_json({"--recipe", file}) == json);
    }
}

TEST_CASE("GPUs: a part of a node, or whole nodes") {
    CHECK(plan_json({"--context", "128K", "--gpus", "4"})["cluster"]["gpus"] == 4);
    const Json two = plan_json({"--context", "128K", "--gpus", "16"});
    CHECK(two["cluster"]["nodes"] == 2);
    CHECK(two == plan_json({"--context", "128K", "--nodes", "2"}));
    CHECK(plan_json({"--context", "128K", "--nodes", "2", "--gpus", "8"})["cluster"]["gpus"] == 8);
}

}  // namespace headroom
