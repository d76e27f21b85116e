// SPDX-License-Identifier: Apache-2.0
// What `headroom max-context` and `headroom show` print.
#include <doctest/doctest.h>

#include "tests/json_of.hpp"
#include "tests/run_headroom.hpp"

namespace headroom {

namespace {

using Words = std::vector<std::string>;
using Json = nlohmann::ordered_json;

const Words methods{"native", "ring", "ulysses", "usp", "fpdt", "upipe"};

}  // namespace

TEST_CASE("one row per method, the longest context planned, and what limits it") {
    const Json json = json_of({"max-context"});
    CHECK(json["schema_version"] == 1);
    REQUIRE(json["methods"].size() == 6);
    for (std::size_t i = 0; i < methods.size(); ++i) {
        const Json& row = json["methods"][i];
        CHECK(row["method"] == methods[i]);
        CHECK(!row["limited_by"].get<std::string>().empty());
        REQUIRE(row["max_context_tokens"] > 0);
        CHECK(row["plan"]["fits"] == true);
        CHECK(row["plan"]["recipe"]["context"] == row["max_context_tokens"]);
        CHECK(row["recipe"] == row["plan"]["recipe"]);
        CHECK(!row["plan"].contains("schema_version"));
    }
}

TEST_CASE("the table names every method and fits 80 columns") {
    const Outcome outcome = run_headroom({"max-context"});
    CHECK(outcome.status == 0);
    CHECK(outcome.err.empty());
    for (const std::string& line : lines_of(outcome.out)) CHECK(line.size() <= 80);
    for (const std::string& method : methods) CHECK(contains(outcome.out, "\n" + method + " "));
    CHECK(contains(outcome.out, "limited by"));
}

TEST_CASE("the table of a large cluster fits 80 columns too") {
    const Outcome outcome = run_headroom({"max-context", "--cluster", "h200", "--nodes", "64"});
    CHECK(outcome.status == 0);
    for (const std::string& line : lines_of(outcome.out)) CHECK(line.size() <= 80);
}

TEST_CASE("chosen methods come in the order asked for") {
    const Json json = json_of({"max-context", "--method", "upipe,ring"});
    REQUIRE(json["methods"].size() == 2);
    CHECK(json["methods"][0]["method"] == "upipe");
    CHECK(json["methods"][1]["method"] == "ring");
    const TemporaryDirectory directory;
    const std::string file = directory.write("run.yaml", "method: usp\ncontext: 512K\n");
    const Json from_file = json_of({"max-context", "--recipe", file});
    REQUIRE(from_file["methods"].size() == 1);
    CHECK(from_file["methods"][0]["method"] == "usp");
}

TEST_CASE("a method that cannot run is a row with its reason, not an error") {
    // 5 GPUs: heads cannot be split over them, a ring can.
    const Json json = json_of({"max-context", "--gpus", "5", "--ulysses", "1", "--method", "ring,ulysses"});
    CHECK(json["methods"][0]["max_context_tokens"] > 0);
    const Outcome text = run_headroom({"max-context", "--heads-per-stage", "16"});
    CHECK(text.status == 0);
    CHECK(contains(text.out, "cannot run"));
    const auto csv = lines_of(run_headroom({"max-context", "--heads-per-stage", "16", "--format", "csv"}).out);
    REQUIRE(csv.size() == 7);
    CHECK(contains(csv[1], ",invalid,"));
    CHECK(contains(csv[6], ",fits,"));
}

TEST_CASE("--require-fit fails when nothing fits") {
    const Words words{"max-context", "--model", "llama3-70b", "--gpus", "1", "--require-fit"};
    CHECK(run_headroom(words).status == 3);
    CHECK(run_headroom({"max-context", "--require-fit"}).status == 0);
}

TEST_CASE("show lists what is built in, in all formats") {
    for (const char* topic : {"models", "clusters", "recipes", "methods"}) {
        CAPTURE(topic);
        const Outcome text = run_headroom({"show", topic});
        CHECK(text.status == 0);
        for (const std::string& line : lines_of(text.out)) CHECK(line.size() <= 80);
        const Json json = json_of({"show", topic});
        CHECK(json[topic].size() >= 4);
        const auto csv = lines_of(run_headroom({"show", topic, "--format", "csv"}).out);
        CHECK(csv.size() == json[topic].size() + 1);
    }
    CHECK(contains(run_headroom({"show", "models"}).out, "8,030,261,248"));
}

TEST_CASE("show one thing in full") {
    CHECK(json_of({"show", "model", "llama3-8b"})["model"]["parameters"] == 8'030'261'248);
    CHECK(json_of({"show", "cluster", "h100-sxm-80gb"})["cluster"]["gpus_per_node"] == 8);
    CHECK(json_of({"show", "recipe", "fpdt"})["recipe"]["chunk_tokens"] == 65'536);
    CHECK(contains(run_headroom({"show", "recipe", "fpdt"}).out, "chunk_tokens"));
}

}  // namespace headroom
