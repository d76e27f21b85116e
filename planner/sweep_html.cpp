// SPDX-License-Identifier: Apache-2.0
#include "planner/sweep_html.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <iterator>

#include "planner/report.hpp"
#include "planner/setting_values.hpp"
#include "reports/numbers.hpp"

namespace headroom {
namespace {

std::int64_t fitting(const SweepCounts& counts) { return counts[SweepStatus::fits]; }

/// Over all methods; nullptr where nothing fits.
const SweepRow* longest_of_all(const SweepBench& bench) {
    const SweepRow* best = nullptr;
    for (std::size_t i = 0; i < method_names.size(); ++i) {
        const SweepRow* row = longest_of(bench, static_cast<Method>(i));
        if (row != nullptr && (best == nullptr || row->recipe.context > best->recipe.context)) best = row;
    }
    return best;
}

std::string speed_text(const SweepRow& row) {
    return row.speed ? three_digits(row.speed->tokens_per_second_per_gpu) : std::string();
}

std::string verdict(const SweepSummary& summary) {
    const std::string counted = fmt::format("{} of {} configurations fit", with_separators(fitting(summary.counts)),
                                            with_separators(summary.counts.rows()));
    std::string text = counted;
    if (summary.benches.size() == 1) {
        if (const SweepRow* row = longest_of_all(summary.benches.front())) {
            text += fmt::format("; {} reaches furthest, {} tokens", display_name(row->recipe.method),
                                approximate_tokens(row->recipe.context));
            if (row->speed) text += fmt::format(" at {} tokens/s per GPU", speed_text(*row));
        }
    }
    return text + ".";
}

std::vector<HtmlPage::Fact> facts(const SweepSummary& summary) {
    const SweepCounts& counts = summary.counts;
    const auto share = [&](SweepStatus status) {
        return fmt::format("{:.1f}% of the rows", 100.0 * static_cast<double>(counts[status]) /
                                                      static_cast<double>(std::max<std::int64_t>(1, counts.rows())));
    };
    std::vector<HtmlPage::Fact> list{
        {"Fit", with_separators(counts[SweepStatus::fits]), share(SweepStatus::fits)},
        {"Do not fit", with_separators(counts[SweepStatus::does_not_fit]), share(SweepStatus::does_not_fit)},
        {"Invalid", with_separators(counts[SweepStatus::invalid]), share(SweepStatus::invalid)}};
    const SweepRow* longest = nullptr;
    const SweepRow* fastest = nullptr;
    for (const SweepBench& bench : summary.benches) {
        const SweepRow* row = longest_of_all(bench);
        if (row != nullptr && (longest == nullptr || row->recipe.context > longest->recipe.context)) longest = row;
        for (const Tokens context : contexts_of(bench)) {
            row = fastest_at(bench, context);
            if (row == nullptr || !row->speed) continue;
            if (fastest == nullptr ||
                row->speed->tokens_per_second_per_gpu > fastest->speed->tokens_per_second_per_gpu) {
                fastest = row;
            }
        }
    }
    const auto where = [&](const SweepRow& row) {
        std::string method = display_name(row.recipe.method);
        if (summary.benches.size() == 1) return method;
        return fmt::format("{}, {} on {}", method, row.model->name, machine(*row.cluster));
    };
    if (longest != nullptr) {
        list.push_back(
            {"Longest context", approximate_tokens(longest->recipe.context) + " tokens",
             fmt::format("{}; {} exactly", where(*longest), with_separators(longest->recipe.context.value))});
    }
    if (fastest != nullptr) {
        list.push_back({"Fastest", speed_text(*fastest) + " tokens/s per GPU",
                        fmt::format("{} at {}", where(*fastest), approximate_tokens(fastest->recipe.context))});
    }
    return list;
}

std::string title(const SweepSummary& summary, const Grid& grid) {
    if (summary.benches.size() == 1) return "Sweep of " + bench_name(summary.benches.front());
    return fmt::format("Sweep of {} {} on {} {}", grid.models.size(), grid.models.size() == 1 ? "model" : "models",
                       grid.clusters.size(), grid.clusters.size() == 1 ? "machine" : "machines");
}

/// One of several machines: all its figures under its name.
HtmlSection machine_section(const SweepBench& bench, const Grid& grid, std::size_t number) {
    const std::string suffix = fmt::format("-{}", number);
    HtmlSection section{"machine" + suffix, bench_name(bench), {}, {}, {}};
    for (const HtmlSection& part : std::array{reach_section(bench, grid, suffix), frontier_section(bench, grid, suffix),
                                              need_section(bench, suffix)}) {
        section.paragraphs.insert(section.paragraphs.end(), part.paragraphs.begin(), part.paragraphs.end());
        section.figures.insert(section.figures.end(), part.figures.begin(), part.figures.end());
        section.tables.insert(section.tables.end(), part.tables.begin(), part.tables.end());
    }
    return section;
}

}  // namespace

std::string bench_name(const SweepBench& bench) {
    return fmt::format("{} on {}", bench.model->name, machine(*bench.cluster));
}

Configurations configurations(const std::vector<const SweepRow*>& rows, const Grid& grid) {
    static constexpr std::array said_already{"method", "context", "ulysses", "ring", "heads_per_stage", "chunk_tokens"};
    Configurations result;
    std::vector<std::vector<NamedSetting>> settings;
    for (const SweepRow* row : rows) {
        settings.push_back(setting_values(row->recipe));
        result.own.push_back(degrees(row->recipe));
    }
    for (const GridAxis& axis : grid.axes) {
        if (axis.values.size() < 2) continue;
        if (std::find(said_already.begin(), said_already.end(), axis.key) != said_already.end()) continue;
        std::vector<std::string> values;
        for (const auto& list : settings) {
            const auto found = std::find_if(list.begin(), list.end(),
                                            [&](const NamedSetting& setting) { return setting.key == axis.key; });
            values.push_back(fmt::format("{} {}", axis.key, to_string(found->value)));
        }
        const bool alike = std::all_of(values.begin(), values.end(), [&](auto& v) { return v == values.front(); });
        if (alike && values.size() > 1) {
            result.shared += (result.shared.empty() ? "; all with " : ", ") + values.front();
            continue;
        }
        for (std::size_t i = 0; i < values.size(); ++i) result.own[i] += ", " + values[i];
    }
    return result;
}

std::vector<Tokens> contexts_shown(const SweepBench& bench) {
    std::vector<Tokens> left = contexts_of(bench);
    if (left.size() <= shown_contexts) return left;
    std::vector<Tokens> shown;
    const auto take = [&](auto wanted) {
        std::copy_if(left.begin(), left.end(), std::back_inserter(shown), wanted);
        std::erase_if(left, wanted);
    };
    take([&](Tokens context) {
        for (std::size_t i = 0; i < method_names.size(); ++i) {
            const SweepRow* row = longest_of(bench, static_cast<Method>(i));
            if (row != nullptr && row->recipe.context == context) return true;
        }
        return false;
    });
    // Then the roundest, as many powers of two as there is room for, and of the rest an even choice.
    for (std::int64_t divisor = 1; shown.size() < shown_contexts; divisor *= 2) {
        const auto round = [&](Tokens context) { return context.value % divisor == 0; };
        const auto count = static_cast<std::size_t>(std::count_if(left.begin(), left.end(), round));
        if (shown.size() + count > shown_contexts) continue;
        take(round);
        break;
    }
    const std::size_t room = shown_contexts - shown.size();
    for (std::size_t i = 0; i < room; ++i) shown.push_back(left[i * left.size() / room]);
    std::sort(shown.begin(), shown.end());
    return shown;
}

HtmlPage sweep_page(const SweepSummary& summary, const Grid& grid, const std::vector<TimeBasis>& bases,
                    const SweepOrigin& origin) {
    HtmlPage page;
    page.title = title(summary, grid);
    page.verdict = verdict(summary);
    page.good = fitting(summary.counts) > 0;
    page.lead = {
        "This page holds what the rows of the sweep come to: for each method how many configurations fit, and at each "
        "context the fastest and the leanest of them. The rows themselves are not in it; the last section has the "
        "command that writes them."};
    page.facts = facts(summary);
    if (summary.counts.rows() < origin.rows_asked) {
        page.notes.push_back(fmt::format("The sweep was interrupted: {} of {} rows are counted here.",
                                         with_separators(summary.counts.rows()), with_separators(origin.rows_asked)));
    }
    if (summary.outside_domain > 0) {
        page.notes.push_back(fmt::format("{} of the {} rows: {}", with_separators(summary.outside_domain),
                                         with_separators(summary.counts.rows()), domain_warning(summary.domain)));
    }
    const bool alone = summary.benches.size() == 1;
    if (!alone) page.sections.push_back(bench_section(summary));
    page.sections.push_back(outcome_section(summary));
    if (alone) {
        const SweepBench& bench = summary.benches.front();
        page.sections.push_back(reach_section(bench, grid, ""));
        page.sections.push_back(frontier_section(bench, grid, ""));
        page.sections.push_back(need_section(bench, ""));
    } else {
        for (std::size_t i = 0; i < std::min(drawn_benches, summary.benches.size()); ++i) {
            page.sections.push_back(machine_section(summary.benches[i], grid, i + 1));
        }
    }
    if (HtmlSection choices = choice_section(summary, grid); !choices.tables.empty()) page.sections.push_back(choices);
    if (HtmlSection reasons = reason_section(summary); !reasons.tables.empty()) page.sections.push_back(reasons);
    page.sections.push_back(grid_section(summary, grid, bases));
    page.command = origin.page.command;
    page.other_commands = {
        {"This one writes all rows, with every setting, bytes, times and reasons:", origin.rows_command}};
    page.made = fmt::format("Made on {} by {}", origin.page.date, origin.page.program);
    return page;
}

}  // namespace headroom
