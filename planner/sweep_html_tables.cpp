// SPDX-License-Identifier: Apache-2.0
// The tables of a sweep's page: machines, choices, reasons, and what was asked.
#include <fmt/format.h>

#include <algorithm>

#include "planner/sweep_html.hpp"
#include "reports/numbers.hpp"

namespace headroom {
namespace {

bool counts_tokens(const std::string& key) { return key == "context" || key == "chunk_tokens"; }

std::string spoken_value(const std::string& key, const std::string& value) {
    return counts_tokens(key) ? short_tokens({std::stoll(value)}) : value;
}

/// "64K, 128K, 192K and 97 more".
std::string some_of(const std::vector<std::string>& values) {
    constexpr std::size_t most = 12;
    if (values.size() <= most) return listed(values);
    std::string text;
    for (std::size_t i = 0; i + 3 < most; ++i) text += values[i] + ", ";
    return text + fmt::format("... {} ({} values)", values.back(), values.size());
}

}  // namespace

HtmlSection bench_section(const SweepSummary& summary) {
    constexpr std::size_t most = 200;
    HtmlTable table{"Models and machines of the sweep",
                    {{"Model and machine", false},
                     {"Fits", true},
                     {"Does not fit", true},
                     {"Invalid", true},
                     {"Longest context", true},
                     {"Its method", false},
                     {"Tokens/s per GPU there", true}},
                    {}};
    for (const SweepBench& bench : summary.benches) {
        if (table.rows.size() == most) break;
        const SweepRow* longest = nullptr;
        for (const Tokens context : contexts_of(bench)) {
            if (const SweepRow* row = fastest_at(bench, context)) longest = row;
        }
        const SweepCounts& counts = bench.counts;
        std::vector<std::string> cells{bench_name(bench)};
        for (const std::int64_t count : counts.by_status) cells.push_back(with_separators(count));
        cells.push_back(longest != nullptr ? with_separators(longest->recipe.context.value) : "nothing fits");
        cells.push_back(longest != nullptr ? display_name(longest->recipe.method) : "");
        cells.push_back(longest != nullptr && longest->speed ? three_digits(longest->speed->tokens_per_second_per_gpu)
                                                             : "");
        table.rows.push_back(std::move(cells));
    }
    HtmlSection section{"machines", "Models and machines", {}, {}, {std::move(table)}};
    if (summary.benches.size() > drawn_benches) {
        section.paragraphs.push_back(
            fmt::format("Figures are drawn for the first {} of these {}; sweep fewer to see the figures of others.",
                        drawn_benches, summary.benches.size()));
    }
    if (summary.benches.size() > most) {
        section.paragraphs.push_back(fmt::format("The table holds the first {}.", most));
    }
    return section;
}

HtmlSection choice_section(const SweepSummary& summary, const Grid& grid) {
    constexpr std::size_t most = 24;
    HtmlSection section{"choices", "What each choice does", {}, {}, {}};
    for (std::size_t i = 0; i < grid.axes.size(); ++i) {
        const std::string& key = grid.axes[i].key;
        const std::vector<SweepChoice>& values = summary.choices[i];
        if (key == "context" || values.size() < 2) continue;
        HtmlTable table{fmt::format("Rows by {}", key),
                        {{key, false},
                         {"Fits", true},
                         {"Does not fit", true},
                         {"Invalid", true},
                         {"Longest context that fits", true},
                         {"Contexts at which it is in the fastest", true}},
                        {}};
        for (const SweepChoice& choice : values) {
            if (table.rows.size() == most) {
                table.caption += fmt::format(", the first {} of {} values", most, values.size());
                break;
            }
            std::vector<std::string> cells{spoken_value(key, choice.value)};
            for (const std::int64_t count : choice.counts.by_status) cells.push_back(with_separators(count));
            cells.push_back(choice.longest.value > 0 ? approximate_tokens(choice.longest) : "nothing fits");
            cells.push_back(with_separators(choice.wins));
            table.rows.push_back(std::move(cells));
        }
        section.tables.push_back(std::move(table));
    }
    if (!section.tables.empty()) {
        section.paragraphs.emplace_back(
            "Every value that was swept: what became of its rows, how far it reaches, and at how many contexts the "
            "fastest configuration of all has it. Of equals the first in the order of the grid counts.");
    }
    return section;
}

HtmlSection reason_section(const SweepSummary& summary) {
    constexpr std::size_t most = 15;
    HtmlSection section{"reasons", "Why the others do not run", {}, {}, {}};
    const auto table = [&](const std::string& caption, const std::map<std::string, std::int64_t>& reasons) {
        if (reasons.empty()) return;
        std::vector<std::pair<std::string, std::int64_t>> sorted(reasons.begin(), reasons.end());
        std::stable_sort(sorted.begin(), sorted.end(), [](auto& a, auto& b) { return a.second > b.second; });
        HtmlTable result{caption, {{"Reason", false}, {"Rows", true}}, {}};
        std::int64_t rest = 0;
        for (const auto& [reason, rows] : sorted) {
            if (result.rows.size() < most && !reason.empty()) {
                result.rows.push_back({reason, with_separators(rows)});
            } else {
                rest += rows;
            }
        }
        if (rest > 0) result.rows.push_back({"other reasons", with_separators(rest)});
        section.tables.push_back(std::move(result));
    };
    table("Rows that do not fit, by what they lack; the GPU counts first", summary.shortages);
    table("Rows that fit but are beyond the shipped code, by what it does not do", summary.beyond_shipped_code);
    table("Invalid rows, by the rule they break", summary.rules);
    return section;
}

HtmlSection grid_section(const SweepSummary& summary, const Grid& grid, const std::vector<TimeBasis>& bases) {
    HtmlSection section{"grid", "What was swept, and what is kept of it", {}, {}, {}};
    section.paragraphs = {
        fmt::format("The sweep evaluated {} rows, every combination of the values below; what is not listed is each "
                    "method's published recipe. A row's memory is the replay of its schedule through the allocator, "
                    "its time the play of the same schedule on CUDA streams.",
                    with_separators(summary.counts.rows())),
        fmt::format("Here the rows are counted by method and outcome. At each context the fastest row that fits and "
                    "the least memory of any row are kept for each method; figures show at most {} contexts and {} "
                    "machines. Everything else is left out; a command at the end writes every row.",
                    shown_contexts, drawn_benches)};
    HtmlTable table{"The grid", {{"Key", false}, {"Values", false}}, {}};
    const auto add = [&](const std::string& key, const std::vector<std::string>& values) {
        table.rows.push_back({key, some_of(values)});
    };
    std::vector<std::string> models, clusters, constants;
    for (const Transformer& model : grid.models) models.push_back(model.name);
    for (std::size_t i = 0; i < grid.clusters.size(); ++i) {
        clusters.push_back(machine(grid.clusters[i]));
        const auto& calibration = bases[i].calibration;
        const std::string name =
            calibration ? fmt::format("{} ({})", calibration->name, calibration->kind) : std::string("none");
        if (std::find(constants.begin(), constants.end(), name) == constants.end()) constants.push_back(name);
    }
    add("model", models);
    add("machine", clusters);
    for (std::size_t i = 0; i < grid.axes.size(); ++i) {
        std::vector<std::string> values;
        for (const SweepChoice& choice : summary.choices[i]) {
            values.push_back(spoken_value(grid.axes[i].key, choice.value));
        }
        add(grid.axes[i].key, values);
    }
    add("constants of step times", constants);
    section.tables.push_back(std::move(table));
    return section;
}

}  // namespace headroom
