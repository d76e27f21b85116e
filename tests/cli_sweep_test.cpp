// SPDX-License-Identifier: Apache-2.0
// What `headroom sweep` writes, and that a file cut anywhere can be continued.
#include <doctest/doctest.h>

#include <nlohmann/json.hpp>

#include <fstream>
#include <map>

#include "tests/csv.hpp"
#include "tests/run_headroom.hpp"

namespace headroom {

namespace {

using Words = std::vector<std::string>;
using Json = nlohmann::ordered_json;

using Row = std::map<std::string, std::string>;
std::vector<Row> rows_of(const Words& words) {
    const Outcome outcome = run_headroom(words);
    CAPTURE(outcome.err);
    REQUIRE(outcome.status == 0);
    CHECK(outcome.err.empty());
    const auto csv = read_csv(outcome.out);
    std::vector<Row> rows;
    for (std::size_t i = 1; i < csv.size(); ++i) {
        REQUIRE(csv[i].size() == csv[0].size());
        for (std::size_t j = 0; j < csv[i].size(); ++j) {
            if (j == 0) rows.emplace_back();
            rows.back()[csv[0][j]] = csv[i][j];
        }
    }
    return rows;
}

void check_refused(const Words& words, std::string_view part) {
    CAPTURE(words);
    const Outcome outcome = run_headroom(words);
    CHECK(outcome.status == 2);
    CHECK(outcome.out.empty());
    CHECK(lines_of(outcome.err).size() <= 2);
    CHECK(contains(outcome.err, part));
}

const Words grid{"sweep", "--method", "ulysses,upipe", "--context", "512K:4M:x2", "--heads-per-stage", "8,16"};

}  // namespace

TEST_CASE("sweep warns where every row is invalid, and says why the first is") {
    const Outcome some =
        run_headroom({"sweep", "--method", "ulysses,upipe", "--context", "1M", "--heads-per-stage", "8"});
    CHECK(some.status == 0);
    CHECK(some.err.empty());
    const Outcome all = run_headroom({"sweep", "--method", "ring", "--context", "1M,2M", "--heads-per-stage", "8"});
    CHECK(all.status == 0);
    CHECK(all.err ==
          "warning: every row is invalid, the first because heads per stage belong to upipe, the method is "
          "ring\n");
}

TEST_CASE("every combination is one row, in the order of the lists, with a status and a reason") {
    const std::vector<Row> rows = rows_of(grid);
    REQUIRE(rows.size() == 2 * 4 * 2);
    std::map<std::string, int> statuses;
    for (std::size_t i = 0; i < rows.size(); ++i) {
        const Row& row = rows[i];
        CHECK(row.at("method") == (i < 8 ? "ulysses" : "upipe"));
        CHECK(row.at("context_tokens") == std::to_string((512 << 10) << (i / 2 % 4)));
        CHECK(row.at("heads_per_stage") == (i % 2 == 0 ? "8" : "16"));
        ++statuses[row.at("status")];
        CHECK(row.at("reason").empty() == (row.at("status") == "fits"));
        CHECK(row.at("device_peak_bytes").empty() == (row.at("status") == "invalid"));
    }
    CHECK(statuses["invalid"] == 8);  // Ulysses has no stages
    CHECK(statuses["fits"] >= 4);
}

TEST_CASE("a row says what plan says") {
    for (const Row& row : rows_of({"sweep", "--method", "upipe,fpdt,usp", "--context", "1M,4M"})) {
        const Outcome plan = run_headroom(
            {"plan", "--method", row.at("method"), "--context", row.at("context_tokens"), "--format", "json"});
        const Json json = Json::parse(plan.out);
        CAPTURE(row.at("method"));
        CHECK((row.at("status") == "fits") == json["fits"].get<bool>());
        CHECK(row.at("device_peak_bytes") == std::to_string(json["device_memory"]["peak_bytes"].get<std::int64_t>()));
        CHECK(std::stod(row.at("step_seconds")) ==
              doctest::Approx(json["step"]["seconds"].get<double>()).epsilon(1e-8));
        CHECK(std::stod(row.at("mfu")) == doctest::Approx(json["step"]["mfu"].get<double>()).epsilon(1e-8));
    }
}

TEST_CASE("JSON lines hold the same values as the CSV") {
    const std::vector<Row> rows = rows_of(grid);
    Words words = grid;
    words.insert(words.end(), {"--format", "jsonl"});
    const auto lines = lines_of(run_headroom(words).out);
    REQUIRE(lines.size() == rows.size());
    for (std::size_t i = 0; i < lines.size(); ++i) {
        const Json json = Json::parse(lines[i]);
        CHECK(json.size() == rows[i].size());
        for (const auto& [name, cell] : rows[i]) {
            const Json& value = json[name];
            if (value.is_null()) CHECK(cell.empty());
            if (value.is_string()) CHECK(value.get<std::string>() == cell);
            if (value.is_boolean()) CHECK((value.get<bool>() ? "true" : "false") == cell);
            if (value.is_number()) CHECK(value.get<double>() == std::stod(cell));
        }
    }
}

TEST_CASE("a file that was cut anywhere continues to the same file") {
    const TemporaryDirectory directory;
    const std::string path = directory.path("rows.csv");
    for (const char* format : {"csv", "jsonl"}) {
        Words words = grid;
        words.insert(words.end(), {"-o", path, "--format", format});
        REQUIRE(run_headroom(words).status == 0);
        const std::string whole = read_file(path);
        words.emplace_back("--resume");
        const std::size_t second = whole.find('\n') + 1;
        for (const std::size_t cut :
             {std::size_t{0}, std::size_t{10}, second, second + 5, whole.size() / 2, whole.size() - 1, whole.size()}) {
            CAPTURE(cut);
            std::ofstream(path, std::ios::binary | std::ios::trunc) << whole.substr(0, cut);
            const Outcome outcome = run_headroom(words);
            CAPTURE(outcome.err);
            CHECK(outcome.status == 0);
            CHECK(read_file(path) == whole);
        }
    }
}

TEST_CASE("--resume begins a file that is not there yet: the same line serves the first run and the next") {
    const TemporaryDirectory directory;
    const Words words{"sweep", "--context", "1M,2M", "-o", directory.path("rows.csv"), "--resume"};
    REQUIRE(run_headroom(words).status == 0);
    const std::string whole = read_file(directory.path("rows.csv"));
    CHECK(read_csv(whole).size() == 3);
    CHECK(run_headroom(words).status == 0);
    CHECK(read_file(directory.path("rows.csv")) == whole);
}

TEST_CASE("a file of another grid is not continued, and stays as it is") {
    const TemporaryDirectory directory;
    const std::string path = directory.path("rows.csv");
    REQUIRE(run_headroom({"sweep", "--context", "1M,2M", "-o", path}).status == 0);
    const std::string before = read_file(path);
    check_refused({"sweep", "--context", "2M,4M", "-o", path, "--resume"}, "another grid");
    check_refused({"sweep", "--context", "1M", "-o", path, "--resume"}, "2 rows");
    CHECK(read_file(path) == before);
    const std::string other = directory.write("other.csv", "a,b\n1,2\n");
    check_refused({"sweep", "--context", "1M", "-o", other, "--resume"}, "other columns");
}

TEST_CASE("an interrupt keeps whole rows and ends with 130") {
    const TemporaryDirectory directory;
    const std::string path = directory.path("rows.csv");
    const std::string sweep =
        "\"$HEADROOM\" sweep --context 64K:8M:64K --batch 1,2,4,8 --method "
        "ulysses,upipe,usp,ring,native --set tiling.loss=off,auto,1024,2048,4096,8192 "
        "--set tiling.mlp=off,auto,1024,2048,4096,8192 --set sharding.degree=1,2,4,8 --ulysses 1,2,4,8 -o '" +
        path + "'";
    const Outcome cut = run_shell(sweep + " & sleep 0.7; kill -INT $!; wait $!");
    CHECK(cut.status == 130);
    const std::string text = read_file(path);
    CHECK(text.ends_with("\n"));
    const auto rows = read_csv(text);
    CHECK(rows.size() > 1);
    for (const auto& row : rows) CHECK(row.size() == rows.front().size());
}

TEST_CASE("a reader that goes away ends the sweep quietly") {
    const Outcome outcome = run_shell("\"$HEADROOM\" sweep --context 64K:8M:64K --batch 1,2,4,8 | head -n 2");
    CHECK(outcome.status == 0);
    CHECK(outcome.err.empty());
    CHECK(lines_of(outcome.out).size() == 2);
}

TEST_CASE("a grid from a file, which flags override") {
    const TemporaryDirectory directory;
    const std::string file = directory.write(
        "grid.yaml", "nodes: [1, 2]\ncontext: [1M, 2M]\nmethod: upipe\noffload:\n  block_inputs: [none, pinned]\n");
    CHECK(rows_of({"sweep", "--grid", file}).size() == 8);
    const std::vector<Row> rows = rows_of({"sweep", "--grid", file, "--context", "512K"});
    REQUIRE(rows.size() == 4);
    CHECK(rows[3].at("context_tokens") == "524288");
    CHECK(rows[3].at("nodes") == "2");
    CHECK(rows[3].at("offload_block_inputs") == "pinned");
}

TEST_CASE("several clusters take their own constants") {
    const std::vector<Row> rows = rows_of({"sweep", "--cluster", "h100-sxm-80gb,h200", "--context", "1M"});
    REQUIRE(rows.size() == 2);
    CHECK(rows[0].at("cluster") == "h100-sxm-80gb");
    CHECK(rows[1].at("cluster") == "h200");
    CHECK(std::stoll(rows[1].at("device_usable_bytes")) > std::stoll(rows[0].at("device_usable_bytes")));
    CHECK(rows[1].at("step_seconds") != rows[0].at("step_seconds"));
}

TEST_CASE("ranges count by a step or a factor") {
    CHECK(rows_of({"sweep", "--context", "128K:512K:128K"}).size() == 4);
    CHECK(rows_of({"sweep", "--context", "128K:4M:x2"}).size() == 6);
    CHECK(rows_of({"sweep", "--context", "128K,1M:2M:1M"}).size() == 3);
}

TEST_CASE("bad grids are refused in two lines, before a file is touched") {
    const TemporaryDirectory directory;
    check_refused({"sweep"}, "no context is given");
    check_refused({"sweep", "--context", "1M:2M"}, "first:last:step");
    check_refused({"sweep", "--context", "2M:1M:128K"}, "--context");
    check_refused({"sweep", "--context", "128K:1M:x1"}, "--context");
    check_refused({"sweep", "--context", "1M,,2M"}, "empty item");
    check_refused({"sweep", "--context", "1M,1M"}, "twice");
    check_refused({"sweep", "--context", "1M", "--method", "upipe,ulises"}, "ulysses");
    check_refused({"sweep", "--context", "1M", "--set", "tiling.mlpp=off"}, "tiling.mlp");
    check_refused({"sweep", "--context", "1M", "--format", "xml"}, "jsonl");
    check_refused({"sweep", "--context", "1M", "--resume"}, "--resume");
    check_refused({"sweep", "--context", "1M", "--gpus", "12"}, "--gpus");
    check_refused({"sweep", "--grid", directory.write("bad.yaml", "context: [1M]\nnods: [1]\n")}, "nodes");
    const std::string path = directory.write("kept.csv", "kept");
    CHECK(run_headroom({"sweep", "--context", "1M", "--method", "x", "-o", path}).status == 2);
    CHECK(read_file(path) == "kept");
}

}  // namespace headroom
