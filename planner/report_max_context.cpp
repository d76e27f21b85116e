// SPDX-License-Identifier: Apache-2.0
#include <fmt/core.h>

#include <algorithm>
#include <numeric>
#include <utility>

#include "planner/report.hpp"
#include "reports/numbers.hpp"
#include "reports/table.hpp"

namespace headroom {

namespace {

/// "8x2", with what cuts heads or tokens behind: "8x2 U8", "8x1 64K".
std::string short_degrees(const Recipe& recipe) {
    std::string text = fmt::format("{}x{}", recipe.ulysses, recipe.ring);
    if (recipe.method == Method::upipe) text += fmt::format(" U{}", recipe.heads_per_stage);
    if (recipe.method == Method::fpdt) text += " " + short_tokens(recipe.chunk_tokens);
    return text;
}

/// What stands before a colon or bracket fits a cell; the whole sentence follows below the table.
std::string short_limit(const std::string& limited_by) {
    const std::string brief = limited_by.substr(0, limited_by.find_first_of(":("));
    return brief.substr(0, brief.find_last_not_of(' ') + 1);
}

void append_row(Table& table, const MaxContext& found) {
    const std::string method(to_string(found.method));
    if (!found.valid) {
        table.row({method, "-", "-", "-", "-", "-", "-", "cannot run"});
        return;
    }
    if (found.context.value == 0) {
        table.row({method, short_degrees(found.recipe), "none", "0", "-", "-", "-", short_limit(found.limited_by)});
        return;
    }
    const DeviceMemory& device = found.plan.device;
    table.row({method, short_degrees(found.recipe), approximate_tokens(found.context),
               with_separators(found.context.value), with_separators(tokens_per_gpu(found.recipe).value),
               fmt::format("{:.1f}/{:.1f}", in_gib(device.peak), in_gib(device.usable)),
               fmt::format("{:.0f}", in_gib(found.plan.host.peak_per_node)), short_limit(found.limited_by)});
}

/// One sentence for all methods that share it.
std::string remarks(const std::vector<MaxContext>& rows) {
    std::vector<std::pair<std::string, std::string>> shared;  // sentence, methods
    for (const MaxContext& found : rows) {
        const std::string& limit = found.limited_by;
        if (found.valid && short_limit(limit) == limit) continue;
        const std::string sentence = (found.valid ? ": " : " cannot run: ") + limit;
        auto known = std::find_if(shared.begin(), shared.end(), [&](const auto& s) { return s.first == sentence; });
        if (known == shared.end()) known = shared.insert(shared.end(), {sentence, ""});
        known->second += (known->second.empty() ? "" : ", ") + std::string(to_string(found.method));
    }
    std::string text;
    for (const auto& [sentence, methods] : shared) text += hanging(printable(methods + sentence));
    return text;
}

/// Recipes that the shipped code does not run, at any context.
std::string beyond(const std::vector<MaxContext>& rows) {
    std::string text;
    for (const MaxContext& found : rows) {
        if (found.plan.beyond_shipped_code.empty()) continue;
        text += hanging(
            fmt::format("{}: beyond the shipped code: {}", to_string(found.method), found.plan.beyond_shipped_code));
    }
    return text;
}

/// "attention 93%, GEMM 5%": the two that hold the step up longest.
std::string largest_parts(const StepTime& time) {
    std::vector<std::size_t> order(part_count);
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::stable_sort(order.begin(), order.end(),
                     [&](std::size_t a, std::size_t b) { return time.parts[a].exposed > time.parts[b].exposed; });
    constexpr std::size_t named = 2;
    std::string text;
    for (std::size_t i = 0; i < named; ++i) {
        text += fmt::format("{}{} {:.0f}%", i == 0 ? "" : ", ", spoken(static_cast<Part>(order[i])),
                            100 * time.parts[order[i]].exposed.value / time.seconds.value);
    }
    return text;
}

/// Step times at these contexts, and once each what is to be said about them.
std::string times(const std::vector<MaxContext>& rows, const Style& style) {
    Table table({{"method"},
                 {"step s", Align::right},
                 {"tokens/s/GPU", Align::right},
                 {"range", Align::right},
                 {"MFU", Align::right},
                 {"exposed time", Align::left, true}});
    bool any = false;
    std::vector<std::string> said;
    const auto say = [&](const std::string& sentence) {
        if (std::find(said.begin(), said.end(), sentence) == said.end()) said.push_back(sentence);
    };
    std::uint32_t domain = 0;
    std::string constants;
    for (const MaxContext& found : rows) {
        if (!found.valid || found.context.value == 0) continue;
        for (const std::string& warning : found.plan.warnings) {
            if (warning.starts_with("cuDNN")) say(warning);
        }
        if (!found.plan.step) {
            if (found.plan.warnings.empty()) continue;
            const std::string& last = found.plan.warnings.back();
            if (last.starts_with("no step time")) say(last);
            continue;
        }
        const StepPrediction& step = *found.plan.step;
        domain |= step.time.domain;
        if (!step.doubt.empty()) say(step.doubt);
        any = true;
        constants = fmt::format("MFU: {}; constants: {} ({})", step.mfu_convention, step.calibration.name,
                                step.calibration.kind);
        table.row({std::string(to_string(found.method)), four_digits(step.time.seconds.value),
                   four_digits(step.tokens_per_second_per_gpu),
                   fmt::format("{} to {}", four_digits(step.tokens_per_second_per_gpu_low),
                               four_digits(step.tokens_per_second_per_gpu_high)),
                   fmt::format("{:.1f}%", 100 * step.mfu), largest_parts(step.time)});
    }
    std::string text;
    if (any)
        text =
            "\n" + style.strong("Step time at these contexts") + "\n" + table.text() + paragraph(printable(constants));
    if (domain != 0) say(domain_warning(domain));
    if (!said.empty()) text += "\n";
    for (const std::string& warning : said) text += paragraph(printable(warning), "warning: ");
    return text;
}

}  // namespace

std::string max_context_text(const Bench& bench, const std::vector<MaxContext>& rows, const Style& style) {
    std::string heading = bench_line(bench.model, bench.cluster);
    heading.pop_back();
    Table table({{"method"},
                 {"degrees"},
                 {"context", Align::right},
                 {"tokens", Align::right},
                 {"per GPU", Align::right},
                 {"GPU GiB", Align::right},
                 {"host", Align::right},
                 {"limited by", Align::left, true}});
    for (const MaxContext& found : rows) append_row(table, found);

    std::string text = style.strong(heading) + "\n\n" + table.text() + "\n";
    text += remarks(rows) + beyond(rows);
    text += paragraph(
        "context (1K = 1,024) and tokens are global; degrees are Ulysses x ring, then U heads per stage or the chunk; "
        "GPU GiB is peak/usable, host is GiB per node");
    text += times(rows, style);
    return text;
}

}  // namespace headroom
