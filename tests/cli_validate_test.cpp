// SPDX-License-Identifier: Apache-2.0
// What `headroom validate` prints, and the arithmetic of its summaries.
#include <doctest/doctest.h>

#include <nlohmann/json.hpp>

#include "planner/validate.hpp"
#include "tests/run_headroom.hpp"

namespace headroom {

namespace {
using Json = nlohmann::ordered_json;
}

TEST_CASE("errors are summarised by hand-worked numbers") {
    // Sorted -9, 1, 2, 4: median 1.5, mean |.| = 16 / 4, worst -9.
    const ErrorSummary even = summarise("m", {{4, "a"}, {-9, "b"}, {1, "c"}, {2, "d"}});
    CHECK(even.count == 4);
    CHECK(even.median == 1.5);
    CHECK(even.mean_absolute == 4);
    CHECK(even.worst == -9);
    CHECK(even.worst_id == "b");
    CHECK(summarise("m", {{3, "a"}, {-1, "b"}, {0, "c"}}).median == 0);
    CHECK(summarise("m", {}).count == 0);
}

TEST_CASE("one set of published results: verdicts first, lines of 80 columns, the same in JSON and CSV") {
    const Outcome text = run_headroom({"validate", "--source", "upipe"});
    CHECK(text.status == 0);
    CHECK(text.err.empty());
    CHECK(contains(text.out, "Verdicts: "));
    CHECK(text.out.find("Verdicts: ") < text.out.find("Errors of memory by method"));
    CHECK(contains(text.out, "stack-6-total"));
    for (const std::string& line : lines_of(text.out)) CHECK(line.size() <= 80);

    const Json json = Json::parse(run_headroom({"validate", "--source", "upipe", "--format", "json"}).out);
    CHECK(json.begin().key() == "schema_version");
    CHECK(json["verdicts"]["refused_though_it_ran"] == 0);
    CHECK(json["verdicts"]["said_fits_and_failed"] == 0);
    std::size_t figures = 0;
    for (const Json& summary : json["memory"]["by_method"]) figures += summary["figures"].get<std::size_t>();
    CHECK(json["memory"]["overall"]["figures"] == figures);
    for (const Json& group : json["not_expressed"]) {
        CHECK_FALSE(group["reason"].get<std::string>().empty());
        CHECK_FALSE(group["ids"].empty());
    }
    const Outcome csv = run_headroom({"validate", "--source", "upipe", "--format", "csv"});
    CHECK(lines_of(csv.out).size() == json["comparisons"].size() + 1);
    CHECK(contains(lines_of(csv.out)[0], "id,set,source,"));
}

TEST_CASE("times are compared in the unit they were measured in, with the interval that was predicted") {
    // One context-parallel group of four on eight GPUs: two sequences a step. 64K * 2 / 8 GPUs / 2 s = 8,192 tokens/s.
    const TemporaryDirectory scratch;
    const std::string path = scratch.write("runs.csv",
                                           "method,context,gpus,ulysses,step_s,tgs,tokens_per_s\n"
                                           "ulysses,64K,8,4,2,8192,65536\n");
    const Json rows =
        Json::parse(run_headroom({"validate", "--measurements", path, "--format", "json"}).out)["comparisons"];
    REQUIRE(rows.size() == 3);
    const double seconds = rows[0]["predicted"];
    CHECK(seconds > 0.1);
    CHECK(rows[1]["predicted"].get<double>() == doctest::Approx(65536 / (4 * seconds)));
    CHECK(rows[2]["predicted"].get<double>() == doctest::Approx(65536 * 2 / seconds));
    CHECK(rows[0]["interval_low"] < rows[0]["predicted"]);
    CHECK(rows[1]["interval_low"] < rows[1]["predicted"]);
    CHECK(rows[1]["interval_high"] > rows[1]["predicted"]);
    // A step that is too long is a rate that is too low.
    CHECK((rows[0]["error_percent"] > 0) == (rows[1]["error_percent"] < 0));
}

TEST_CASE("only some methods") {
    const Json json =
        Json::parse(run_headroom({"validate", "--source", "upipe", "--method", "ring,upipe", "--format", "json"}).out);
    CHECK(json["comparisons"].size() > 5);
    for (const Json& row : json["comparisons"]) CHECK((row["method"] == "ring" || row["method"] == "upipe"));
}

TEST_CASE("a user's CSV: wrong verdicts, errors and what could not be read") {
    const TemporaryDirectory scratch;
    const std::string path = scratch.write("runs.csv",
                                           "method,context,peak_allocated_gib,status\n"
                                           "upipe,3M,51.1,ok\n"
                                           "upipe,3M,oom,\n"
                                           "ulysses,5M,,ok\n"
                                           "upipe,3,1,ok\n"
                                           "upipe,many,1,ok\n");
    const Outcome text = run_headroom({"validate", "--measurements", path});
    CHECK(text.status == 0);
    CHECK(contains(text.err, path + ":6: row left out: "));
    CHECK(contains(text.out, "1 right, 1 said to fit that failed, 2 refused that ran"));
    CHECK(contains(text.out, "Said to fit, and failed\n  line 3: llama3-8b on 8 x h100-sxm-80gb, upipe at 3,145,728"));
    CHECK(contains(text.out, "Refused, though it ran\n  line 4: "));
    CHECK(contains(text.out, "context of 3 tokens is not a multiple of 8"));
    const Json json = Json::parse(run_headroom({"validate", "--measurements", path, "--format", "json"}).out);
    CHECK(json["comparisons"][0]["predicted"].get<double>() == doctest::Approx(51.1).epsilon(0.01));
    CHECK(std::abs(json["comparisons"][0]["error_percent"].get<double>()) < 1);
    CHECK(json["comparisons"][3]["predicted"].is_null());
    CHECK(json["warnings"].size() == 1);
}

TEST_CASE("a peak of no stated kind is compared with a range") {
    const TemporaryDirectory scratch;
    const auto row = [&](const char* gib) {
        const std::string path =
            scratch.write("runs.csv", std::string("method,context,peak_gib\nupipe,3M,") + gib + "\n");
        return Json::parse(
            run_headroom({"validate", "--measurements", path, "--format", "json"}).out)["comparisons"][0];
    };
    CHECK(row("53")["error_percent"] == 0);
    CHECK(row("53")["predicted"] < 53);
    CHECK(row("53")["predicted_high"] > 53);
    CHECK(row("40")["error_percent"] > 20);
    CHECK(row("70")["error_percent"] < -10);
}

TEST_CASE("mistakes name the flag") {
    Outcome outcome = run_headroom({"validate", "--source", "upip"});
    CHECK(outcome.status == 2);
    CHECK(contains(outcome.err, "(--source)"));
    CHECK(contains(outcome.err, "did you mean upipe?"));
    CHECK(run_headroom({"validate", "--method", "upipee"}).status == 2);
    CHECK(contains(run_headroom({"validate", "--model", "qwen3-8b"}).err, "--model is for CSV files"));
    CHECK(run_headroom({"validate", "--measurements", "no-such.csv"}).status == 2);
    CHECK(run_headroom({"validate", "--help"}).status == 0);
}

TEST_CASE("a figure below zero is no measurement") {
    const TemporaryDirectory scratch;
    const std::string path = scratch.write("runs.csv", "method,context,peak_allocated_gib\nupipe,1M,-1\nupipe,1M,20\n");
    const Outcome outcome = run_headroom({"validate", "--measurements", path, "--format", "json"});
    CHECK(outcome.status == 0);
    const Json json = Json::parse(outcome.out);
    CHECK(json["comparisons"].size() == 1);
    REQUIRE(json["warnings"].size() == 1);
    CHECK(contains(json["warnings"][0].get<std::string>(), "peak_allocated_gib cannot be measured as -1"));
}

}  // namespace headroom
