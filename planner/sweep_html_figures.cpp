// SPDX-License-Identifier: Apache-2.0
// The figures of a sweep's page: how many fit, how far, how fast and with what memory.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>

#include "planner/sweep_html.hpp"
#include "reports/numbers.hpp"

namespace headroom {
namespace {

/// Methods that have rows, with their cells.
std::vector<Method> methods_of(const SweepBench& bench) {
    std::vector<Method> methods;
    for (std::size_t i = 0; i < bench.methods.size(); ++i) {
        if (!bench.methods[i].empty()) methods.push_back(static_cast<Method>(i));
    }
    return methods;
}

const SweepCell* cell_at(const SweepBench& bench, Method method, Tokens context) {
    const auto& cells = bench.methods[static_cast<std::size_t>(method)];
    const auto found = cells.find(context);
    return found == cells.end() ? nullptr : &found->second;
}

Line line_of(Method method) { return {display_name(method), colour_of(method), {}, 0, true, "", ~std::size_t{0}}; }

/// "UPipe from 2,316 at 128K to 94.5 at 5.12M": the first and the last point of a line.
std::string ends_of(const Line& line, const char* unit) {
    const auto at = [&](const Line::Point& point) {
        return fmt::format("{}{} at {}", three_digits(point.y), unit,
                           approximate_tokens({static_cast<std::int64_t>(point.x)}));
    };
    if (line.points.size() == 1) return fmt::format("{} {}", line.name, at(line.points.front()));
    return fmt::format("{} from {} to {}", line.name, at(line.points.front()), at(line.points.back()));
}

std::string interval(const SweepSpeed& speed) {
    return fmt::format("{} to {}", three_digits(speed.tokens_per_second_per_gpu_low),
                       three_digits(speed.tokens_per_second_per_gpu_high));
}

/// A row for each context shown, a column for each method.
HtmlTable by_context(const SweepBench& bench, const std::string& caption,
                     const std::function<std::string(const SweepCell&)>& text) {
    HtmlTable table{caption, {{"Context", false}, {"Tokens", true}}, {}};
    const std::vector<Method> methods = methods_of(bench);
    for (const Method method : methods) table.columns.push_back({display_name(method), true});
    for (const Tokens context : contexts_shown(bench)) {
        std::vector<std::string> row{approximate_tokens(context), with_separators(context.value)};
        bool any = false;
        for (const Method method : methods) {
            const SweepCell* cell = cell_at(bench, method, context);
            row.push_back(cell == nullptr ? std::string() : text(*cell));
            any |= !row.back().empty();
        }
        if (any) table.rows.push_back(std::move(row));
    }
    return table;
}

HtmlTable fastest_table(const SweepBench& bench, const Grid& grid, const std::vector<Tokens>& contexts) {
    std::vector<const SweepRow*> rows;
    for (const Tokens context : contexts) {
        if (const SweepRow* row = fastest_at(bench, context)) rows.push_back(row);
    }
    const Configurations chosen = configurations(rows, grid);
    HtmlTable table{"The fastest configuration of all methods at each context" + chosen.shared,
                    {{"Context", false},
                     {"Tokens", true},
                     {"Method", false},
                     {"Tokens/s per GPU", true},
                     {"Interval", true},
                     {"Step", true},
                     {"MFU", true},
                     {"GPU, GiB", true},
                     {"Host, GiB", true},
                     {"Configuration", false}},
                    {}};
    for (std::size_t i = 0; i < rows.size(); ++i) {
        const SweepRow& row = *rows[i];
        const Tokens context = row.recipe.context;
        std::vector<std::string> cells{approximate_tokens(context), with_separators(context.value),
                                       display_name(row.recipe.method)};
        if (row.speed) {
            cells.insert(cells.end(), {three_digits(row.speed->tokens_per_second_per_gpu), interval(*row.speed),
                                       duration(row.speed->seconds), fmt::format("{:.1f}%", 100 * row.speed->mfu)});
        } else {
            cells.insert(cells.end(), {"", "", "", ""});
        }
        cells.push_back(gib(device_need(row)));
        cells.push_back(three_digits(in_gib(row.host_peak_per_node)));
        cells.push_back(chosen.own[i]);
        table.rows.push_back(std::move(cells));
    }
    return table;
}

std::string shown_of(std::size_t shown, const SweepBench& bench) {
    const std::size_t all = contexts_of(bench).size();
    if (shown == all) return {};
    return fmt::format(" {} of the {} contexts are shown: the longest of each method, the roundest, and some between.",
                       shown, all);
}

}  // namespace

HtmlSection outcome_section(const SweepSummary& summary) {
    std::array<SweepCounts, method_names.size()> counts;
    for (const SweepBench& bench : summary.benches) {
        for (std::size_t i = 0; i < counts.size(); ++i) {
            for (const auto& [context, cell] : bench.methods[i]) {
                for (std::size_t j = 0; j < 3; ++j) counts[i].by_status[j] += cell.counts.by_status[j];
            }
        }
    }
    BarChart chart;
    chart.x = {"rows", false, 0, 0, {}};
    static constexpr std::array<const char*, 3> names{"fits", "does not fit", "invalid"};
    static constexpr std::array<int, 3> slots{4, 7, 1};
    for (std::size_t j = 0; j < 3; ++j) chart.parts.push_back({names[j], {Colour::Family::part, slots[j]}, {}});
    HtmlTable table{"Rows of each method by what became of them",
                    {{"Method", false}, {"Fits", true}, {"Does not fit", true}, {"Invalid", true}, {"Rows", true}},
                    {}};
    std::vector<std::string> items;
    std::int64_t most = 1;
    for (std::size_t i = 0; i < counts.size(); ++i) {
        if (counts[i].rows() == 0) continue;
        const std::string name = display_name(static_cast<Method>(i));
        std::vector<std::string> cells{name};
        for (std::size_t j = 0; j < 3; ++j) {
            chart.parts[j].values.push_back(static_cast<double>(counts[i].by_status[j]));
            cells.push_back(with_separators(counts[i].by_status[j]));
        }
        cells.push_back(with_separators(counts[i].rows()));
        table.rows.push_back(std::move(cells));
        chart.rows.push_back(name);
        chart.row_texts.push_back(fmt::format("{} fit", with_separators(counts[i][SweepStatus::fits])));
        items.push_back(fmt::format("{}: {} of {} fit", name, with_separators(counts[i][SweepStatus::fits]),
                                    with_separators(counts[i].rows())));
        most = std::max(most, counts[i].rows());
    }
    chart.x.most = static_cast<double>(most) * 1.22;
    HtmlSection section{"outcomes", "How many configurations fit", {}, {}, {}};
    section.figures.push_back(
        {"outcome", "Rows by method",
         "What is invalid breaks a rule of the method, such as a degree that does not "
         "divide the heads; what does not fit runs out of memory.",
         fmt::format("Stacked bars of the rows of each method that fit, do not fit and are invalid. {}.",
                     listed(items)),
         chart, table, false});
    return section;
}

HtmlSection reach_section(const SweepBench& bench, const Grid& grid, const std::string& suffix) {
    BarChart chart;
    BarChart::Part part{"longest context", {}, {}};
    std::vector<const SweepRow*> rows;
    for (const Method method : methods_of(bench)) {
        if (const SweepRow* row = longest_of(bench, method)) rows.push_back(row);
    }
    const Configurations chosen = configurations(rows, grid);
    HtmlTable table{"Longest context of each method in this sweep, and its fastest configuration there" + chosen.shared,
                    {{"Method", false},
                     {"Tokens", true},
                     {"Tokens/s per GPU", true},
                     {"Step", true},
                     {"GPU, GiB", true},
                     {"Host, GiB", true},
                     {"Configuration", false}},
                    {}};
    std::vector<std::string> items;
    Tokens most{1};
    std::size_t fitting = 0;
    for (const Method method : methods_of(bench)) {
        const SweepRow* row = longest_of(bench, method);
        const std::string name = display_name(method);
        chart.rows.push_back(name);
        chart.row_colours.push_back(colour_of(method));
        chart.row_texts.push_back(row != nullptr ? approximate_tokens(row->recipe.context) : "nothing fits");
        part.values.push_back(row != nullptr ? static_cast<double>(row->recipe.context.value) : 0);
        items.push_back(fmt::format("{} {}", name, chart.row_texts.back()));
        if (row == nullptr) {
            table.rows.push_back({name, "nothing fits", "", "", "", "", ""});
            continue;
        }
        most = std::max(most, row->recipe.context);
        const auto& speed = row->speed;
        table.rows.push_back({name, with_separators(row->recipe.context.value),
                              speed ? three_digits(speed->tokens_per_second_per_gpu) : "",
                              speed ? duration(speed->seconds) : "", gib(device_need(*row)),
                              three_digits(in_gib(row->host_peak_per_node)), chosen.own[fitting++]});
    }
    chart.parts.push_back(part);
    chart.x = linear_token_axis(most);
    HtmlSection section{"reach" + suffix, "How far each method goes", {}, {}, {}};
    section.figures.push_back(
        {"longest" + suffix, "Longest context of the sweep that fits",
         "Among the contexts of the sweep: headroom max-context finds the length itself.",
         fmt::format("Bars of the longest context of the sweep that each method fits, in tokens: {}.", listed(items)),
         chart, table, false});
    return section;
}

HtmlSection frontier_section(const SweepBench& bench, const Grid& grid, const std::string& suffix) {
    HtmlSection section{"frontier" + suffix, "The fastest at each context", {}, {}, {}};
    const std::vector<Tokens> contexts = contexts_shown(bench);
    LineChart chart;
    const HtmlTable table =
        by_context(bench, "Tokens/s per GPU of the fastest configuration of each method, with the interval",
                   [](const SweepCell& cell) {
                       if (!cell.fastest || !cell.fastest->speed) return std::string();
                       const SweepSpeed& speed = *cell.fastest->speed;
                       return fmt::format("{} ({})", three_digits(speed.tokens_per_second_per_gpu), interval(speed));
                   });
    std::vector<std::string> items;
    Tokens least{0}, most{0};
    double slowest = 1e300, fastest = 0;
    for (const Method method : methods_of(bench)) {
        Line line = line_of(method);
        for (const Tokens context : contexts) {
            const SweepCell* cell = cell_at(bench, method, context);
            if (cell == nullptr || !cell->fastest || !cell->fastest->speed) continue;
            const SweepSpeed& speed = *cell->fastest->speed;
            line.points.push_back({static_cast<double>(context.value), speed.tokens_per_second_per_gpu,
                                   speed.tokens_per_second_per_gpu_low, speed.tokens_per_second_per_gpu_high});
            least = least.value == 0 ? context : std::min(least, context);
            most = std::max(most, context);
            slowest = std::min(slowest, speed.tokens_per_second_per_gpu_low);
            fastest = std::max(fastest, speed.tokens_per_second_per_gpu_high);
        }
        if (line.points.empty()) continue;
        line.solid = line.points.size();
        items.push_back(ends_of(line, ""));
        chart.lines.push_back(std::move(line));
    }
    HtmlTable best = fastest_table(bench, grid, contexts);
    if (best.rows.empty()) {
        section.paragraphs.emplace_back("No configuration fits at any context.");
        return section;
    }
    if (!chart.lines.empty()) {
        chart.x = token_axis("tokens of one sequence, over all GPUs", least, most);
        chart.y = logarithmic_axis("tokens/s per GPU", slowest, fastest);
        section.figures.push_back(
            {"frontier-speed" + suffix, "Tokens per second and GPU of the fastest configuration that fits",
             "Both axes are logarithmic. Shades are the intervals that the constants' ranges make; a bar across a "
             "line marks the longest context of the sweep that the method fits." +
                 shown_of(contexts.size(), bench),
             fmt::format("Lines of the best tokens per second and GPU over context: {}.", listed(items)), chart, table,
             false});
    }
    section.tables.push_back(std::move(best));
    return section;
}

HtmlSection need_section(const SweepBench& bench, const std::string& suffix) {
    HtmlSection section{"memory" + suffix, "Memory against context", {}, {}, {}};
    const std::vector<Tokens> contexts = contexts_shown(bench);
    LineChart chart;
    const HtmlTable table = by_context(
        bench, "GiB that the leanest configuration of each method needs on the worst rank; a cross: none fits",
        [](const SweepCell& cell) {
            if (!cell.least_need) return std::string();
            return gib(*cell.least_need) + (cell.fastest ? "" : " \xE2\x9C\x95");
        });
    std::vector<std::string> items;
    Tokens most{1};
    for (const Method method : methods_of(bench)) {
        Line line = line_of(method);
        for (const Tokens context : contexts) {
            const SweepCell* cell = cell_at(bench, method, context);
            if (cell == nullptr || !cell->least_need) continue;
            const bool fits = cell->fastest.has_value();
            // The line leads on to one that does not fit, as far as memory is the reason.
            if (!fits && line.solid < line.points.size()) break;
            line.points.push_back(
                {static_cast<double>(context.value), in_gib(*cell->least_need), std::nullopt, std::nullopt});
            if (fits) line.solid = line.points.size();
            most = std::max(most, context);
        }
        if (line.points.empty()) continue;
        items.push_back(ends_of(line, " GiB"));
        chart.lines.push_back(std::move(line));
    }
    if (chart.lines.empty()) {
        section.paragraphs.emplace_back("No configuration could be set up.");
        return section;
    }
    chart.x = linear_token_axis(most);
    chart.x.most = static_cast<double>(most.value) * 1.02;
    std::erase_if(chart.x.ticks, [&](const auto& tick) { return tick.first > chart.x.most; });
    const double capacity = in_gib(bench.cluster->device_memory);
    chart.y = {"GiB on the worst rank", false, 0, std::ceil(capacity * 1.25 / 10) * 10, {}};
    chart.limit = Limit{capacity, capacity_label(*bench.cluster)};
    section.figures.push_back(
        {"need" + suffix, "Memory of the leanest configuration, by context",
         "With what is outside the allocator. A bar across a line marks the longest context of the sweep that fits; "
         "dashes lead on to one that does not. Where a line ends below the limit, host memory or a rule of the "
         "method stops it." +
             shown_of(contexts.size(), bench),
         fmt::format("Lines of the least GPU memory over context, with a limit at {:.1f} GiB: {}.", capacity,
                     listed(items)),
         chart, table, false});
    return section;
}

}  // namespace headroom
