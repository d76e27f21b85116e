// SPDX-License-Identifier: Apache-2.0
// The page of a sweep says what its rows say, and stays small whatever their number.
#include <doctest/doctest.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>

#include "configs/load.hpp"
#include "planner/sweep_html.hpp"
#include "reports/numbers.hpp"
#include "tests/run_headroom.hpp"

namespace headroom {

namespace {

using Words = std::vector<std::string>;
using Json = nlohmann::json;

const Words grid_words{"sweep", "--method", "ring,ulysses,fpdt,upipe", "--context", "512K:5M:512K", "--batch",
                       "1,2",   "--set",    "tiling.mlp=off,auto"};

std::vector<Json> rows_of(Words words) {
    words.insert(words.end(), {"--format", "jsonl"});
    std::vector<Json> rows;
    for (const std::string& line : lines_of(run_headroom(words).out)) rows.push_back(Json::parse(line));
    return rows;
}

std::string page_of(Words words) {
    words.insert(words.end(), {"--format", "html", "-o", "-"});
    const Outcome outcome = run_headroom(words);
    CAPTURE(outcome.err);
    REQUIRE(outcome.status == 0);
    CHECK(outcome.err.empty());
    return outcome.out;
}

/// The cells of each row of the table with this caption, behind the first.
std::map<std::string, std::vector<std::string>> table(const std::string& page, const std::string& caption) {
    std::size_t at = page.find("<caption>" + caption);
    REQUIRE(at != std::string::npos);
    const std::size_t end = page.find("</table>", at);
    std::map<std::string, std::vector<std::string>> rows;
    std::string name;
    while (true) {
        const std::size_t head = page.find("<th scope=\"row\">", at);
        const std::size_t cell = page.find("<td", at);
        at = std::min(head, cell);
        if (at >= end) return rows;
        const std::size_t from = page.find('>', at) + 1;
        const std::string text = page.substr(from, page.find('<', from) - from);
        if (head < cell) {
            name = text;
            rows[name];
        } else {
            rows[name].push_back(text);
        }
        at = from;
    }
}

/// Chart data as the page's script reads them.
Json figures_of(const std::string& page) {
    const std::string open = "id=\"figure-data\">";
    const std::size_t at = page.find(open) + open.size();
    std::map<std::string, Json> figures;
    for (const Json& figure : Json::parse(page.substr(at, page.find("</script>", at) - at))) {
        figures[figure["id"]] = figure;
    }
    return figures;
}

}  // namespace

TEST_CASE("counts, the fastest and the leanest of the page are those of the rows") {
    const std::vector<Json> rows = rows_of(grid_words);
    const std::string page = page_of(grid_words);
    std::map<std::string, std::map<std::string, int>> counts;
    std::map<std::pair<std::string, std::int64_t>, double> fastest;
    std::map<std::pair<std::string, std::int64_t>, std::int64_t> leanest;
    std::map<std::string, std::int64_t> longest;
    for (const Json& row : rows) {
        const std::string method = row["method"];
        ++counts[method][row["status"]];
        const auto key = std::pair(method, row["context_tokens"].get<std::int64_t>());
        if (row["status"] == "fits") {
            fastest[key] = std::max(fastest[key], row["tokens_per_second_per_gpu"].get<double>());
            longest[method] = std::max(longest[method], key.second);
        }
        if (row["status"] == "invalid") continue;
        const std::int64_t peak = row["device_peak_bytes"];
        const auto [found, added] = leanest.emplace(key, peak);
        if (!added) found->second = std::min(found->second, peak);
    }
    const std::map<std::string, std::string> names{
        {"ring", "Ring"}, {"ulysses", "Ulysses"}, {"fpdt", "FPDT"}, {"upipe", "UPipe"}};
    const auto outcomes = table(page, "Rows of each method by what became of them");
    const auto reach = table(page, "Longest context of each method in this sweep");
    const Json figures = figures_of(page);
    REQUIRE(outcomes.size() == names.size());
    for (const auto& [method, name] : names) {
        CAPTURE(method);
        CHECK(outcomes.at(name)[0] == std::to_string(counts[method]["fits"]));
        CHECK(outcomes.at(name)[1] == std::to_string(counts[method]["does_not_fit"]));
        CHECK(outcomes.at(name)[2] == std::to_string(counts[method]["invalid"]));
        CHECK(reach.at(name)[0] == with_separators(longest[method]));
    }
    std::size_t compared = 0;
    for (const Json& line : figures["frontier-speed"]["lines"]) {
        for (const Json& point : line["points"]) {
            for (const auto& [method, name] : names) {
                if (line["name"] != name) continue;
                CHECK(point[1].get<double>() ==
                      doctest::Approx(fastest.at({method, point[0].get<std::int64_t>()})).epsilon(1e-4));
                ++compared;
            }
        }
    }
    CHECK(compared == fastest.size());
    compared = 0;
    const Json upipe = *std::find_if(
        rows.begin(), rows.end(), [](const Json& row) { return row["method"] == "upipe" && row["status"] == "fits"; });
    const double outside = static_cast<double>(load_cluster("h100-sxm-80gb").device_memory.value) -
                           upipe["device_usable_bytes"].get<double>();
    for (const Json& line : figures["need"]["lines"]) {
        if (line["name"] != "UPipe") continue;
        for (const Json& point : line["points"]) {
            const double peak = static_cast<double>(leanest.at({"upipe", point[0].get<std::int64_t>()}));
            CHECK(point[1].get<double>() ==
                  doctest::Approx((peak + outside) / static_cast<double>(gibi)).epsilon(1e-4));
            ++compared;
        }
    }
    CHECK(compared > 5);
    CHECK(contains(page, "Rows by tiling.mlp"));
    CHECK(contains(page,
                   "headroom sweep --method ring,ulysses,fpdt,upipe --context 512K:5M:512K --batch 1,2 "
                   "--set tiling.mlp=off,auto -o rows.csv"));
}

TEST_CASE("a page of any number of rows stays below 1 MB, and its figures hold each method's longest context") {
    Grid grid;
    const Transformer model = load_model("llama3-8b");
    grid.models.assign(6, model);
    grid.clusters.assign(5, load_cluster("h100-sxm-80gb"));
    GridAxis methods{"method", {}}, contexts{"context", {}};
    for (std::size_t i = 0; i < method_names.size(); ++i) {
        methods.values.emplace_back();
        methods.values.back().method = static_cast<Method>(i);
    }
    for (std::int64_t i = 1; i <= 700; ++i) {
        contexts.values.emplace_back();
        contexts.values.back().context = Tokens{i * 12'345};
    }
    grid.axes = {methods, contexts};
    REQUIRE(grid.size() > 100'000);
    SweepSummarizer summarizer(grid);
    const auto longest = [](Method method) { return Tokens{12'345 * (503 + 17 * static_cast<std::int64_t>(method))}; };
    for (std::int64_t i = 0; i < grid.size(); ++i) {
        const Grid::Point point = grid.point(i);
        SweepRow row;
        row.index = i;
        row.model = point.model;
        row.cluster = point.cluster;
        row.said = point.said;
        row.recipe.method = *point.said.method;
        row.recipe.context = *point.said.context;
        row.device_usable = Bytes{70 * gibi};
        row.device_peak = Bytes{row.recipe.context.value * 10'000};
        row.status = row.recipe.context > longest(row.recipe.method) ? SweepStatus::does_not_fit : SweepStatus::fits;
        if (row.status != SweepStatus::fits) row.reason = std::to_string(i) + ".00 GiB short on the GPU";
        const double speed = 1e9 / static_cast<double>(row.recipe.context.value);
        row.speed = SweepSpeed{{1}, {1}, {1}, speed, 0.9 * speed, 1.1 * speed, 0.4, 0};
        summarizer.add(row);
    }
    const std::vector<TimeBasis> bases(grid.clusters.size());
    const SweepOrigin origin{{"headroom sweep", "headroom", "today"}, "headroom sweep", grid.size()};
    const SweepSummary summary = summarizer.take();
    CHECK(summary.counts.rows() == grid.size());
    CHECK(summary.shortages.size() == 1);
    const std::string page = html(sweep_page(summary, grid, bases, origin));
    CHECK(page.size() < 1'000'000);
    CHECK(!contains(page, "interrupted"));
    const Json figures = figures_of(page);
    for (const Json& line : figures["frontier-speed-1"]["lines"]) {
        const auto method = static_cast<Method>(line["colour"].get<std::string>().back() - '0');
        CHECK(line["points"].size() > 20);
        CHECK(line["points"].size() <= shown_contexts);
        CHECK(line["points"].back()[0].get<std::int64_t>() == longest(method).value);
    }
}

TEST_CASE("an interrupted sweep leaves a page that says so") {
    const TemporaryDirectory directory;
    const std::string path = directory.path("page.html");
    const Outcome cut = run_shell(
        "\"$HEADROOM\" sweep --context 64K:8M:64K --batch 1,2,4,8 --method "
        "ulysses,upipe,usp,ring,native --set tiling.loss=off,auto,1024,2048,4096,8192 "
        "--set tiling.mlp=off,auto,1024,2048,4096,8192 --set sharding.degree=1,2,4,8 "
        "--ulysses 1,2,4,8 --format html -o '" +
        path + "' & sleep 0.7; kill -INT $!; wait $!");
    CHECK(cut.status == 130);
    CHECK(contains(read_file(path), "The sweep was interrupted: "));
}

TEST_CASE("a page needs a name, and is not continued") {
    const TemporaryDirectory directory;
    const auto refused = [](Words words, std::string_view part) {
        words.insert(words.begin(), {"sweep", "--context", "1M", "--format", "html"});
        const Outcome outcome = run_headroom(words);
        CHECK(outcome.status == 2);
        CHECK(contains(outcome.err, part));
    };
    refused({}, "-o surface.html");
    refused({"-o", directory.path("x.html"), "--resume"}, "--resume");
    refused({"-o", directory.path("nowhere/x.html")}, "no directory");
    CHECK(directory.names().empty());
    const Outcome full = run_headroom({"sweep", "--context", "1M", "--format", "html", "-o", "/dev/full"});
    CHECK(full.status == 1);
    CHECK(contains(full.err, "No space left"));
}

}  // namespace headroom
