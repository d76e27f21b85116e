// SPDX-License-Identifier: Apache-2.0
// Claim: results are read as they were written: YAML strictly, CSV forgivingly, and nothing in either is guessed.
#include "configs/measurement.hpp"

#include <doctest/doctest.h>

#include "models/error.hpp"
#include "tests/run_headroom.hpp"

namespace headroom {
namespace {

std::string complaint(const std::string& yaml) {
    try {
        read_measurements(yaml, "runs.yaml");
    } catch (const Error& error) {
        return std::string(error.what()) + " | " + error.where() + " | " + error.hint();
    }
    return {};
}

const std::string entry =
    "entries:\n"
    "- id: a\n"
    "  model: llama3-8b\n"
    "  cluster: {base: h100-sxm-80gb, host_memory: 1.9TB}\n"
    "  nodes: 2\n"
    "  gpus: 16\n"
    "  recipe: {method: usp, context: 1M, tiling.mlp: off}\n"
    "  metric: peak_reserved_gb\n"
    "  value: 40.5\n";

MeasurementFile csv(const std::string& text) {
    return read_measurement_csv(text, "runs.csv", "llama3-8b", "h100-sxm-80gb");
}

}  // namespace

TEST_CASE("a YAML entry is read whole") {
    const std::vector<Measurement> runs = read_measurements("source: me\nurl: https://x\n" + entry, "runs.yaml");
    REQUIRE(runs.size() == 1);
    const Measurement& run = runs[0];
    CHECK(run.source == "me");
    CHECK(run.set == "runs");
    CHECK(run.place == "runs.yaml:4:3");
    CHECK(run.cluster.host_memory.value == 1'900'000'000'000);
    CHECK(run.cluster.gpus() == 16);
    CHECK(run.cluster.nodes == 2);
    CHECK(run.said.method == Method::usp);
    CHECK(run.said.context == Tokens{1 << 20});
    CHECK(run.said.tiling_mlp == Tiling{});
    CHECK_FALSE(run.said.tiling_loss);
    CHECK(run.metric.figure == Figure::peak_reserved);
    CHECK(*run.in_base_units() == 40.5e9);
    CHECK(run.status == RunStatus::ok);
}

TEST_CASE("what is wrong in an entry is named with its place") {
    CHECK(contains(complaint(entry + "  valeu: 3\n"),
                   "unknown key valeu | runs.yaml:10:10: valeu | did you mean value?"));
    CHECK(contains(complaint(entry + "- id: a\n  not_expressed: because\n"), "the id a stands twice"));
    CHECK(contains(complaint("entries:\n- id: a\n  metric: peak_reserved\n"),
                   "peak_reserved has no unit | runs.yaml:3:11: metric | write peak_reserved_gib (2^30 bytes) or"));
    CHECK(contains(complaint("entries:\n- id: a\n  metric: peek_gib\n"), "did you mean peak_gib?"));
    CHECK(contains(complaint("entries:\n- id: a\n"), "needs model, cluster and recipe, or a reason"));
    CHECK(contains(complaint("entries:\n- model: llama3-8b\n"), "the entry has no id"));
    CHECK(contains(complaint("entries:\n- id: a\n  value: 3\n  not_expressed: because\n"), "the value has no metric"));
    CHECK(contains(complaint("source: me\n"), "a map with a list of entries"));
    std::string changed = entry;
    changed.replace(changed.find("gpus: 16"), 8, "gpus: 15");
    CHECK(contains(complaint(changed), "15 GPUs are not 2 equal nodes of at most 8"));
    changed = entry;
    changed.replace(changed.find("method: usp"), 11, "method: ups");
    CHECK(contains(complaint(changed), "method must be one of"));
    CHECK(contains(complaint(changed), "runs.yaml:7:20: method"));
    changed = entry;
    changed.replace(changed.find("model: llama3-8b"), 16, "model: {base: llama3-8b, layer: 2}");
    CHECK(contains(complaint(changed), "unknown key layer"));
}

TEST_CASE("sizes of a job: whole nodes, or a part of one") {
    const auto size = [](int nodes, int gpus) {
        Cluster cluster;
        cluster.gpus_per_node = 8;
        set_job_size(cluster, nodes, gpus, "here");
        return std::pair{cluster.nodes, cluster.gpus_per_node};
    };
    CHECK(size(0, 0) == std::pair{1, 8});
    CHECK(size(0, 2) == std::pair{1, 2});
    CHECK(size(0, 32) == std::pair{4, 8});
    CHECK(size(3, 0) == std::pair{3, 8});
    CHECK(size(2, 8) == std::pair{2, 4});
    CHECK_THROWS_AS(size(0, 12), Error);
    CHECK_THROWS_AS(size(1, 16), Error);
    CHECK_THROWS_AS(size(2, 3), Error);
}

TEST_CASE("CSV records after RFC 4180") {
    const std::vector<CsvRecord> records = parse_csv(
        "\xef\xbb\xbf"
        "a,\"b \"\"c\"\"\",\r\n\n\"two\nlines\",x,y\n1,2,3",
        "f");
    REQUIRE(records.size() == 3);
    CHECK(records[0].fields == std::vector<std::string>{"a", "b \"c\"", ""});
    CHECK(records[1].fields == std::vector<std::string>{"two\nlines", "x", "y"});
    CHECK(records[1].line == 3);
    CHECK(records[2].line == 5);
    CHECK_THROWS_WITH_AS(parse_csv("a,b\n1,\"2\n", "f"), "a quoted field is not closed", Error);
}

TEST_CASE("CSV columns by many names, units in the heading") {
    const MeasurementFile file =
        csv("Run,Model,GPU,World Size,Method,Seq-Len,SP,offload_block_inputs,Peak Memory GB,Step Time s,TGS,Result\n"
            "first,qwen3-8b,h200,4,Ulysses,128K,4,none,50,12.5,\"650.25\",success\n");
    CHECK(file.warnings.empty());
    REQUIRE(file.measurements.size() == 3);
    const Measurement& run = file.measurements[0];
    CHECK(run.id == "first");
    CHECK(run.model.name == "qwen3-8b");
    CHECK(run.cluster.name == "h200");
    CHECK(run.cluster.gpus() == 4);
    CHECK(run.said.method == Method::ulysses);
    CHECK(run.said.context == Tokens{131072});
    CHECK(run.said.ulysses == 4);
    CHECK(run.said.offload_block_inputs == HostPlace::none);
    CHECK(run.metric.figure == Figure::peak);
    CHECK(*run.in_base_units() == 50e9);
    CHECK(file.measurements[1].metric.figure == Figure::step_seconds);
    CHECK(file.measurements[2].metric.figure == Figure::tokens_per_second_per_gpu);
    CHECK(*file.measurements[2].value == 650.25);
}

TEST_CASE("a CSV row says that it failed, or only that it ran") {
    const MeasurementFile file =
        csv("method,context,peak_gib,status\nupipe,1M,OOM,\nupipe,1M,,ok\nupipe,1M,n/a,skipped\n");
    REQUIRE(file.measurements.size() == 3);
    CHECK(file.measurements[0].status == RunStatus::oom);
    CHECK_FALSE(file.measurements[0].value);
    CHECK(file.measurements[1].metric.figure == Figure::verdict);
    CHECK(file.measurements[2].status == RunStatus::not_run);
}

TEST_CASE("a row that cannot be read is reported with its line, and the rest goes on") {
    const MeasurementFile file =
        csv("method,context,peak_gib,memory,loss curve\n"
            "upipe,1M,20,,\n"
            "upipe,1M,twenty,,\n"
            "upipe,,20,,\n"
            "upipe,1M,20\n"
            "upipes,1M,20,,\n"
            "ulysses,1M,21,,\n");
    REQUIRE(file.measurements.size() == 2);
    CHECK(file.measurements[1].id == "line 7");
    REQUIRE(file.warnings.size() == 5);
    CHECK(file.warnings[0] ==
          "runs.csv:1: columns ignored: memory (no unit: write memory_gib or memory_gb), loss curve");
    CHECK(contains(file.warnings[1], "runs.csv:3: row left out: peak_gib must be a number, not 'twenty'"));
    CHECK(contains(file.warnings[2], "runs.csv:4: row left out: the row has no context"));
    CHECK(contains(file.warnings[3], "runs.csv:5: row left out: 3 fields, the heading has 5"));
    CHECK(contains(file.warnings[4], "runs.csv:6: row left out: method must be one of"));
    CHECK(contains(file.warnings[4], "did you mean upipe?"));
}

TEST_CASE("headings that cannot be used") {
    CHECK_THROWS_WITH_AS(csv(""), "the file has no heading", Error);
    CHECK_THROWS_WITH_AS(csv("model,peak_gib\nllama3-8b,3\n"), "no column says method or context", Error);
    CHECK_THROWS_WITH_AS(csv("method,context,seq_len\nupipe,1M,1M\n"), "two columns mean context", Error);
    try {
        csv("method;context\nupipe;1M\n");
        FAIL("semicolons were read");
    } catch (const Error& error) {
        CHECK(contains(error.hint(), "commas, not semicolons"));
    }
}

}  // namespace headroom
