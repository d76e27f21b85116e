// SPDX-License-Identifier: Apache-2.0
// Every CSV that the program writes: rows as wide as their heading, no column named twice.
#include "tests/csv.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <set>

#include "tests/run_headroom.hpp"

namespace headroom {

namespace {

using Words = std::vector<std::string>;

std::vector<std::vector<std::string>> rectangle(Words words) {
    words.insert(words.end(), {"--format", "csv"});
    CAPTURE(words);
    const Outcome outcome = run_headroom(words);
    REQUIRE(outcome.status == 0);
    const auto rows = read_csv(outcome.out);
    REQUIRE(rows.size() > 1);
    const std::set<std::string> names(rows[0].begin(), rows[0].end());
    CHECK(names.size() == rows[0].size());
    for (const auto& row : rows) CHECK(row.size() == rows[0].size());
    return rows;
}

}  // namespace

TEST_CASE("rows of every CSV are as wide as their heading") {
    rectangle({"plan", "--context", "1M"});
    rectangle({"max-context", "--heads-per-stage", "16"});
    rectangle({"recommend", "--context", "1M", "--method", "ulysses,upipe", "--batch", "1"});
    rectangle({"what-if", "--context", "1M", "--change", "method=ulysses", "--change", "nodes=2"});
    rectangle({"sweep", "--context", "1M:8M:x2", "--method", "ulysses,fpdt", "--heads-per-stage", "8,16"});
    rectangle({"simulate", "--context", "128K"});
    rectangle({"validate"});
    for (const char* topic : {"models", "clusters", "recipes", "calibrations"}) rectangle({"show", topic});
}

TEST_CASE("validate's CSV has the interval that was predicted, and notes in their own column") {
    const auto rows = rectangle({"validate"});
    const auto column = [&](const char* name) {
        return static_cast<std::size_t>(std::find(rows[0].begin(), rows[0].end(), name) - rows[0].begin());
    };
    std::size_t intervals = 0;
    for (std::size_t i = 1; i < rows.size(); ++i) {
        const std::string& low = rows[i][column("interval_low")];
        const std::string& high = rows[i][column("interval_high")];
        CHECK(low.empty() == high.empty());
        if (low.empty()) continue;
        ++intervals;
        CHECK(std::stod(low) <= std::stod(high));
    }
    CHECK(intervals > 10);
}

}  // namespace headroom
