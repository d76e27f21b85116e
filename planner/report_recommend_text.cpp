// SPDX-License-Identifier: Apache-2.0
#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <iterator>

#include "planner/report.hpp"
#include "planner/report_recommend.hpp"
#include "planner/structure_search.hpp"
#include "reports/numbers.hpp"
#include "reports/table.hpp"

namespace headroom {

namespace {

std::string one_decimal(Bytes bytes) { return fmt::format("{:.1f}", in_gib(bytes)); }
std::string signed_gib(Bytes bytes) { return fmt::format("{:+.2f}", in_gib(bytes)); }
std::string percent(double share) { return fmt::format("{:g}%", std::round(share * 1e4) / 100); }

std::string speed_range(const Candidate& candidate) {
    const StepTime& step = candidate.evaluation.step;
    return fmt::format("{} ({}-{})", four_digits(candidate.speed),
                       four_digits(tokens_per_second_per_gpu(candidate.recipe, step.high)),
                       four_digits(tokens_per_second_per_gpu(candidate.recipe, step.low)));
}

std::string name_of(const Recipe& recipe) {
    return fmt::format("{} {} {}", to_string(recipe.method), to_string(recipe.implementation), brief_degrees(recipe));
}

std::string steps_text(const Recommendations& answer) {
    std::string step = short_tokens(answer.step);
    if (answer.step == answer.asked_step) return step;
    return fmt::format("{} ({} rounded up so that ranks and chunks divide it)", step, short_tokens(answer.asked_step));
}

std::string heading(const Recommendations& answer, const Style& style) {
    std::string bench = bench_line(answer.model, answer.cluster);
    bench.pop_back();
    const std::string exact = with_separators(answer.context.value);
    const std::string what = answer.longest ? fmt::format("Longest context, in steps of {}: {} ({} tokens)",
                                                          steps_text(answer), approximate_tokens(answer.context), exact)
                                            : fmt::format("Fastest at {} tokens", exact);
    const std::string spare = fmt::format("with {} of the GPU's and {} of the host's usable memory to spare",
                                          percent(answer.margin.device), percent(answer.margin.host));
    return style.strong(bench) + "\n" + paragraph(what + ", " + spare);
}

std::string ranking(const Recommendations& answer) {
    const auto sequences = [&](const Recommendation& row) {
        return sequences_at_once(row.candidate.recipe, answer.cluster);
    };
    const bool several = std::any_of(answer.list.begin(), answer.list.end(),
                                     [&](const Recommendation& row) { return sequences(row) > 1; });
    std::vector<Column> columns{
        {"#"}, {"method"}, {"code"}, {"degrees"}, {"GPU GiB", Align::right}, {"host", Align::right}};
    if (several) columns.push_back({"seqs", Align::right});
    columns.push_back({"tokens/s/GPU", Align::right});
    Table table(columns);
    for (std::size_t i = 0; i < answer.list.size(); ++i) {
        const Recommendation& row = answer.list[i];
        const Recipe& recipe = row.candidate.recipe;
        std::vector<std::string> cells{std::to_string(i + 1),
                                       std::string(to_string(recipe.method)),
                                       std::string(to_string(recipe.implementation)),
                                       brief_degrees(recipe),
                                       one_decimal(row.plan.device.peak) + "/" + one_decimal(row.plan.device.usable),
                                       fmt::format("{:.0f}", in_gib(row.plan.host.peak_per_node))};
        if (several) cells.push_back(with_separators(sequences(row)));
        cells.push_back(several ? four_digits(row.candidate.speed) : speed_range(row.candidate));
        table.row(cells);
    }
    return table.text() +
           paragraph(fmt::format("degrees are Ulysses x ring, then U heads per stage or the chunk; GPU GiB is "
                                 "peak/usable, host is GiB per node; {}",
                                 several ? "seqs are the sequences of one step, its global batch; speed counts them "
                                           "all"
                                         : "speed with its interval"));
}

/// The changes as a sentence about the other recipe.
std::string against(const Alternative& other) {
    const double speed = other.speed_change;
    std::string text = std::abs(speed) < 5e-4
                           ? "as fast"
                           : fmt::format("{:.1f}% {}", 100 * std::abs(speed), speed > 0 ? "faster" : "slower");
    text +=
        fmt::format(", the step's peak {} GiB ({})", signed_gib(other.peak_change), signed_percent(other.peak_share));
    if (other.device_short.value > 0) {
        text += fmt::format("; does not fit, {} GiB short on the GPU", one_decimal(other.device_short));
    } else if (other.host_short.value > 0) {
        text += fmt::format("; does not fit, {} GiB short on the host", one_decimal(other.host_short));
    } else if (!other.fits) {
        text += "; does not fit for what sticks in the allocator";
    }
    return text;
}

/// Of each setting the fastest and the leanest alternative: what one could win either way.
std::vector<Alternative> telling(const std::vector<Alternative>& all) {
    std::vector<Alternative> chosen;
    std::vector<std::string> keys;
    for (const Alternative& turn : all) {
        const std::string& key = turn.changed.front().key;
        if (std::find(keys.begin(), keys.end(), key) != keys.end()) continue;
        keys.push_back(key);
        std::vector<Alternative> same;
        std::copy_if(all.begin(), all.end(), std::back_inserter(same),
                     [&](const Alternative& other) { return other.changed.front().key == key; });
        const auto fastest = std::max_element(
            same.begin(), same.end(), [](const auto& a, const auto& b) { return a.speed_change < b.speed_change; });
        const auto leanest = std::min_element(
            same.begin(), same.end(), [](const auto& a, const auto& b) { return a.peak_change < b.peak_change; });
        chosen.push_back(*fastest);
        if (leanest != fastest) chosen.push_back(*leanest);
    }
    return chosen;
}

std::string why(const Recommendations& answer, const Style& style) {
    const Recommendation& first = answer.list.front();
    std::string text = style.strong("Why the first") + "\n";
    if (first.as_published) {
        text += paragraph(against(*first.as_published), "  as published: ");
        std::vector<Difference> departures = differences(first.published, first.candidate.recipe);
        text += paragraph(settings_text(departures), "  it departs in: ");
    } else {
        text += "  It is the recipe as its authors run it.\n";
    }
    if (first.next) text += paragraph(name_of(first.next->candidate.recipe) + ": " + against(*first.next), "  ");
    Table table({{"instead", Align::left, true},
                 {"peak GiB", Align::right},
                 {"of it", Align::right},
                 {"host", Align::right},
                 {"speed", Align::right},
                 {""}});
    for (const Alternative& turn : telling(first.turned)) {
        table.row({settings_text(turn.changed), signed_gib(turn.peak_change), signed_percent(turn.peak_share),
                   fmt::format("{:+.0f}", in_gib(turn.host_change)), signed_percent(turn.speed_change),
                   turn.fits ? "fits" : "too big"});
    }
    text += "  One choice turned, all else equal; changes of the whole step:\n" + table.text(page_width, 2);
    return text;
}

std::string curve_text(const Curve& curve, const Style& style) {
    Table table({{curve.key, Align::right}, {"GPU GiB", Align::right}, {"tokens/s/GPU", Align::right}, {""}});
    for (const Curve::Point& point : curve.points) {
        std::string note = point.fits ? "" : point.sticks ? "too fragmented" : "does not fit";
        if (!point.shipped) note += std::string(note.empty() ? "" : ", ") + "not in the shipped code";
        if (point.chosen) note = "<- chosen";
        table.row({with_separators(point.value), gib(point.candidate.evaluation.memory.device_peak),
                   speed_range(point.candidate), note});
    }
    return style.strong("Curve, all else as chosen") + "\n" + table.text(page_width, 2);
}

std::string miss_text(const NearMiss& miss) {
    std::string text;
    if (!miss.beyond_shipped_code.empty()) text = "beyond the shipped code: " + miss.beyond_shipped_code;
    if (!text.empty() && miss.device_short.value + miss.host_short.value > 0) text += "; ";
    if (miss.device_short.value > 0) text += fmt::format("{} GiB short on the GPU", one_decimal(miss.device_short));
    if (miss.host_short.value > 0) {
        text += fmt::format("{}{} GiB short on the host", miss.device_short.value > 0 ? ", " : "",
                            one_decimal(miss.host_short));
    }
    text += miss.fits_up_to.value > 0 ? fmt::format("; fits up to {}", approximate_tokens(miss.fits_up_to))
                                      : "; fits at no context";
    if (!miss.turn.empty()) {
        text += fmt::format(", or here with {} ({} speed)", settings_text(miss.turn), signed_percent(-miss.turn_costs));
    }
    return text;
}

std::string misses(const Recommendations& answer, const Style& style) {
    if (answer.near_misses.empty()) return {};
    std::string text = style.strong("Published recipes that do not fit, and the least that would help") + "\n";
    for (const NearMiss& miss : answer.near_misses) {
        text += hanging("  " + name_of(miss.candidate.recipe) + ": " + miss_text(miss));
    }
    return text;
}

std::string front_text(const Recommendations& answer, const Style& style) {
    if (answer.front.empty()) return {};
    Table table({{"context", Align::right},
                 {"tokens/s/GPU", Align::right},
                 {"GPU GiB", Align::right},
                 {"recipe", Align::left, true}});
    for (const FrontPoint& point : answer.front) {
        table.row({approximate_tokens(point.context), speed_range(point.candidate),
                   one_decimal(point.candidate.evaluation.memory.device_peak), name_of(point.candidate.recipe)});
    }
    return style.strong("Front of context against speed") + "\n" + table.text(page_width, 2);
}

std::string counts(const Recommendations& answer) {
    return paragraph(fmt::format(
               "{} recipes considered, {} evaluated in full, of which {} fit{}. Speeds within {} count as equal: the "
               "recipe "
               "nearest to the published one is taken.",
               with_separators(answer.considered), with_separators(answer.evaluated), with_separators(answer.feasible),
               answer.exhaustive ? "" : "; the others cannot fit or cannot be faster", percent(answer.tie))) +
           (answer.not_searched.empty() ? "" : paragraph(std::string(answer.not_searched)));
}

}  // namespace

std::string brief_degrees(const Recipe& recipe) {
    std::string text = fmt::format("{}x{}", recipe.ulysses, recipe.ring);
    if (recipe.method == Method::upipe) text += fmt::format(" U{}", recipe.heads_per_stage);
    if (recipe.method == Method::fpdt) text += " " + short_tokens(recipe.chunk_tokens);
    return text;
}

std::string settings_text(const std::vector<Difference>& changed) {
    std::string text;
    for (const Difference& difference : changed) {
        text += fmt::format("{}{}={}", text.empty() ? "" : ", ", difference.key,
                            difference.to.empty() ? "none" : difference.to);
    }
    return text;
}

std::string signed_percent(double share) {
    const double tenths = std::round(share * 1000);
    return tenths == 0 ? "0.0%" : fmt::format("{:+.1f}%", tenths / 10);
}

std::string recommend_text(const Recommendations& answer, const Style& style) {
    std::string text = heading(answer, style) + "\n";
    if (answer.list.empty()) {
        const bool none = answer.considered == 0;
        text += style.bad(none ? "No recipe that the shipped code runs." : "No recipe fits.") + "\n";
        if (answer.fits_on_nodes > 0) {
            text += fmt::format("With {} nodes ({} GPUs) something does.\n", answer.fits_on_nodes,
                                answer.fits_on_nodes * answer.cluster.gpus_per_node);
        }
        return text + misses(answer, style) + counts(answer);
    }
    const Recommendation& first = answer.list.front();
    text += ranking(answer) + "\n" + why(answer, style) + "\n";
    if (first.curve) text += curve_text(*first.curve, style) + "\n";
    const std::string missed = misses(answer, style);
    text += missed + (missed.empty() ? "" : "\n");
    const std::string points = front_text(answer, style);
    text += points + (points.empty() ? "" : "\n");
    text += style.strong("The first in full") + "\n" +
            plan_command_line(first.candidate.recipe, first.plain, answer.bench_flags) + "\n";
    return text + counts(answer);
}

}  // namespace headroom
