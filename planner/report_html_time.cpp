// SPDX-License-Identifier: Apache-2.0
// What the page says about time: speed over contexts, what chunk sizes do, where a step goes, one block's streams.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cmath>

#include "planner/report_html.hpp"
#include "reports/numbers.hpp"

namespace headroom {
namespace {

constexpr const char* speed_title = "tokens/s per GPU";

/// Heads per stage, or tokens per chunk, against memory and against speed.
struct ChunkCurve {
    std::string id, method, what, axis_title, unit;
    const std::vector<StudyPoint>& points;
    std::int64_t chosen;
    Colour colour;
    bool tokens;
};

std::string size_text(const ChunkCurve& curve, std::int64_t size) {
    return curve.tokens ? short_tokens({size}) : fmt::format("{}", size);
}

Axis size_axis(const ChunkCurve& curve) {
    Axis axis{curve.axis_title,
              true,
              static_cast<double>(curve.points.front().chunk) / 1.25,
              static_cast<double>(curve.points.back().chunk) * 1.25,
              {}};
    for (const StudyPoint& point : curve.points) {
        axis.ticks.emplace_back(static_cast<double>(point.chunk), size_text(curve, point.chunk));
    }
    return axis;
}

HtmlTable chunk_table(const ChunkCurve& curve) {
    HtmlTable table{fmt::format("{}: {}", curve.method, curve.what),
                    {{curve.unit, false},
                     {"Needed, GiB", true},
                     {"Fits", false},
                     {"Tokens/s per GPU", true},
                     {"Interval", true},
                     {"Recipe", false}},
                    {}};
    for (const StudyPoint& point : curve.points) {
        const auto& step = point.step;
        table.rows.push_back({size_text(curve, point.chunk), gib(point.need), point.fits ? "yes" : "no",
                              step ? three_digits(step->tokens_per_second_per_gpu) : "",
                              step ? fmt::format("{} to {}", three_digits(step->tokens_per_second_per_gpu_low),
                                                 three_digits(step->tokens_per_second_per_gpu_high))
                                   : "",
                              point.chunk == curve.chosen ? "this one" : ""});
    }
    return table;
}

std::size_t index_of_chosen(const ChunkCurve& curve) {
    const auto found = std::find_if(curve.points.begin(), curve.points.end(),
                                    [&](const StudyPoint& point) { return point.chunk == curve.chosen; });
    return found == curve.points.end() ? ~std::size_t{0} : static_cast<std::size_t>(found - curve.points.begin());
}

HtmlFigure chunk_memory(const ChunkCurve& curve, const Cluster& cluster) {
    LineChart chart;
    Line line{curve.method, curve.colour, {}, curve.points.size(), false, "in use", index_of_chosen(curve)};
    double most = in_gib(cluster.device_memory);
    std::vector<std::string> items;
    for (const StudyPoint& point : curve.points) {
        line.points.push_back({static_cast<double>(point.chunk), in_gib(point.need), std::nullopt, std::nullopt});
        most = std::max(most, std::min(in_gib(point.need), 1.3 * most));
        items.push_back(fmt::format("{:.1f} GiB at {}", in_gib(point.need), size_text(curve, point.chunk)));
    }
    chart.lines.push_back(std::move(line));
    chart.x = size_axis(curve);
    chart.y = {"GiB on the worst rank", false, 0, std::ceil(most * 1.12 / 10) * 10, {}};
    chart.limit = Limit{in_gib(cluster.device_memory), fmt::format("GPU: {} GiB", gib(cluster.device_memory))};
    return {curve.id + "-memory",
            fmt::format("{}: memory by {}", curve.method, curve.what),
            "",
            fmt::format("Line of GPU memory over {}: {}.", curve.what, listed(items)),
            chart,
            chunk_table(curve),
            true};
}

HtmlFigure chunk_speed(const ChunkCurve& curve) {
    LineChart chart;
    Line line{curve.method, curve.colour, {}, curve.points.size(), false, "in use", index_of_chosen(curve)};
    double most = 0;
    std::vector<std::string> items;
    for (const StudyPoint& point : curve.points) {
        if (!point.step) continue;
        const StepPrediction& step = *point.step;
        line.points.push_back({static_cast<double>(point.chunk), step.tokens_per_second_per_gpu,
                               step.tokens_per_second_per_gpu_low, step.tokens_per_second_per_gpu_high});
        most = std::max(most, step.tokens_per_second_per_gpu_high);
        items.push_back(
            fmt::format("{} at {}", three_digits(step.tokens_per_second_per_gpu), size_text(curve, point.chunk)));
    }
    chart.lines.push_back(std::move(line));
    chart.x = size_axis(curve);
    chart.y = {speed_title, false, 0, most * 1.15, {}};
    return {curve.id + "-speed",
            fmt::format("{}: speed by {}", curve.method, curve.what),
            "",
            fmt::format("Line of tokens per second and GPU over {}: {}.", curve.what, listed(items)),
            chart,
            chunk_table(curve),
            true};
}

/// What the ends of a curve cost against each other, in one sentence.
std::string trade(const ChunkCurve& curve) {
    const StudyPoint& small = curve.points.front();
    const StudyPoint& large = curve.points.back();
    std::string text =
        fmt::format("{}: {} instead of {} {} take {} instead of {} GiB", curve.method, size_text(curve, small.chunk),
                    size_text(curve, large.chunk), curve.unit, gib(small.need), gib(large.need));
    if (!small.step || !large.step) return text + ".";
    const double slow = small.step->tokens_per_second_per_gpu;
    const double fast = large.step->tokens_per_second_per_gpu;
    if (std::fabs(slow / fast - 1) < 5e-4) {
        return text + fmt::format(" and leave the speed at {} tokens/s per GPU.", three_digits(slow));
    }
    return text + fmt::format(" and change the speed by {:+.1f}%, to {} tokens/s per GPU.", 100 * (slow / fast - 1),
                              three_digits(slow));
}

const char* stream_name(Stream stream) {
    static constexpr std::array names{"compute",          "all-to-all",     "ring",          "gather weights",
                                      "reduce gradients", "host to device", "device to host"};
    static_assert(names.size() == stream_count);
    return names[static_cast<std::size_t>(stream)];
}

HtmlFigure pass_figure(const LayerTimeline::Pass& pass, const std::string& method, std::size_t number) {
    const bool milliseconds = pass.seconds < 2;
    const double unit = milliseconds ? 1e3 : 1;
    const char* name = milliseconds ? "milliseconds" : "seconds";
    std::array<std::array<double, part_count>, stream_count> busy{};
    std::array<bool, stream_count> used_stream{};
    std::array<bool, part_count> used_part{};
    for (const auto& span : pass.spans) {
        const auto stream = static_cast<std::size_t>(span.stream);
        const auto part = static_cast<std::size_t>(span.part);
        busy[stream][part] += span.length;
        used_stream[stream] = used_part[part] = true;
    }
    SpanChart chart;
    std::array<std::size_t, stream_count> row{};
    std::array<std::size_t, part_count> kind{};
    HtmlTable table{fmt::format("{}, {} of a block: busy time of each stream", method, pass.name),
                    {{"Stream and work", false},
                     {fmt::format("Busy, {}", milliseconds ? "ms" : "s"), true},
                     {"Share of the pass", true}},
                    {}};
    std::vector<std::string> items;
    for (std::size_t i = 0; i < stream_count; ++i) {
        if (!used_stream[i]) continue;
        row[i] = chart.rows.size();
        chart.rows.emplace_back(stream_name(static_cast<Stream>(i)));
        double sum = 0;
        for (std::size_t j = 0; j < part_count; ++j) {
            if (busy[i][j] <= 0) continue;
            sum += busy[i][j];
            table.rows.push_back({fmt::format("{}: {}", chart.rows.back(), display_name(static_cast<Part>(j))),
                                  fmt::format("{:.2f}", busy[i][j] * unit),
                                  fmt::format("{:.1f}%", 100 * busy[i][j] / pass.seconds)});
        }
        items.push_back(fmt::format("{} busy {:.0f}%", chart.rows.back(), 100 * std::min(1.0, sum / pass.seconds)));
    }
    for (std::size_t j = 0; j < part_count; ++j) {
        if (!used_part[j]) continue;
        kind[j] = chart.kinds.size();
        chart.kinds.push_back({display_name(static_cast<Part>(j)), colour_of(static_cast<Part>(j))});
    }
    for (const auto& span : pass.spans) {
        chart.spans.push_back({row[static_cast<std::size_t>(span.stream)], kind[static_cast<std::size_t>(span.part)],
                               span.start * unit, span.length * unit});
    }
    chart.x = {name, false, 0, pass.seconds * unit, {}};
    std::string title = fmt::format("{}: {}", pass.name, duration({pass.seconds}));
    title.front() = static_cast<char>(std::toupper(static_cast<unsigned char>(title.front())));
    return {fmt::format("layer-{}", number),
            title,
            "",
            fmt::format("Timeline of the streams of one rank over {}: {}.", duration({pass.seconds}), listed(items)),
            chart,
            table,
            false};
}

}  // namespace

Axis logarithmic_axis(const std::string& title, double least, double most) {
    Axis axis{title, true, least / 1.3, most * 1.3, {}};
    for (double decade = std::pow(10.0, std::floor(std::log10(axis.least))); decade <= axis.most; decade *= 10) {
        for (const double factor : {1.0, 2.0, 5.0}) {
            const double at = factor * decade;
            if (at >= axis.least && at <= axis.most) axis.ticks.emplace_back(at, fmt::format("{:g}", at));
        }
    }
    for (auto& [at, label] : axis.ticks) {
        if (at >= 1000) label = with_separators(std::llround(at));
    }
    return axis;
}

HtmlSection speed_section(const Study& study) {
    LineChart chart;
    HtmlTable table{"Tokens per second and GPU, by context",
                    {{"Method and context", false},
                     {"Tokens", true},
                     {"Tokens/s per GPU", true},
                     {"Interval", true},
                     {"Step", true}},
                    {}};
    Tokens least{study.focus}, most{study.focus};
    double slowest = 1e300, fastest = 0;
    std::vector<std::string> items;
    for (const MethodStudy& method : study.methods) {
        Line line{display_name(method.method), colour_of(method.method), {}, 0, true, "", ~std::size_t{0}};
        for (const StudyPoint& point : method.curve) {
            if (!point.fits || !point.step) continue;
            const StepPrediction& step = *point.step;
            line.points.push_back({static_cast<double>(point.context.value), step.tokens_per_second_per_gpu,
                                   step.tokens_per_second_per_gpu_low, step.tokens_per_second_per_gpu_high});
            least = std::min(least, point.context);
            most = std::max(most, point.context);
            slowest = std::min(slowest, step.tokens_per_second_per_gpu_low);
            fastest = std::max(fastest, step.tokens_per_second_per_gpu_high);
            table.rows.push_back({fmt::format("{}, {}", line.name, approximate_tokens(point.context)),
                                  with_separators(point.context.value), three_digits(step.tokens_per_second_per_gpu),
                                  fmt::format("{} to {}", three_digits(step.tokens_per_second_per_gpu_low),
                                              three_digits(step.tokens_per_second_per_gpu_high)),
                                  duration(step.time.seconds)});
        }
        line.solid = line.points.size();
        if (line.points.empty()) continue;
        items.push_back(fmt::format("{} from {} at {} to {} at {}", line.name, three_digits(line.points.front().y),
                                    approximate_tokens({static_cast<std::int64_t>(line.points.front().x)}),
                                    three_digits(line.points.back().y),
                                    approximate_tokens({static_cast<std::int64_t>(line.points.back().x)})));
        chart.lines.push_back(std::move(line));
    }
    HtmlSection section{"speed-by-context", "Speed against context", {}, {}, {}};
    if (chart.lines.empty()) {
        section.paragraphs.emplace_back("No context fits, so there is no speed to show.");
        return section;
    }
    chart.x = token_axis("tokens of one sequence, over all GPUs", least, most);
    chart.y = logarithmic_axis(speed_title, slowest, fastest);
    section.figures.push_back({"speed", "Tokens per second and GPU, by context",
                               "Both axes are logarithmic. Shades are the intervals that the constants' ranges make; a "
                               "bar across a line marks where the method runs out of memory.",
                               fmt::format("Lines of tokens per second and GPU over context: {}.", listed(items)),
                               chart, table, false});
    return section;
}

HtmlSection chunk_section(const Study& study) {
    HtmlSection section{"chunk-sizes", fmt::format("Chunk sizes, at {}", short_tokens(study.focus)), {}, {}, {}};
    const auto add = [&](const ChunkCurve& curve) {
        if (curve.points.size() < 2) return;
        section.paragraphs.push_back(trade(curve));
        section.figures.push_back(chunk_memory(curve, study.cluster));
        if (curve.points.front().step) section.figures.push_back(chunk_speed(curve));
    };
    add({"stages", "UPipe", "heads per stage", "heads per stage (U)", "heads per stage", study.stages, study.stage,
         colour_of(Method::upipe), false});
    add({"chunks", "FPDT", "tokens per chunk", "tokens per chunk, over all GPUs", "tokens per chunk", study.chunks,
         study.chunk, colour_of(Method::fpdt), true});
    if (section.figures.empty()) section.paragraphs.emplace_back("Only one chunk size is possible here.");
    return section;
}

HtmlSection time_section(const Study& study) {
    BarChart chart;
    HtmlTable table{"Seconds of one step that each kind of work is exposed for", {{"Method", false}}, {}};
    for (std::size_t i = 0; i < part_count; ++i) {
        const auto part = static_cast<Part>(i);
        chart.parts.push_back({display_name(part), colour_of(part), {}});
        table.columns.push_back({display_name(part), true});
    }
    table.columns.push_back({"Step, s", true});
    table.columns.push_back({"Fits", false});
    double most = 0;
    std::vector<std::string> items;
    for (const MethodStudy& method : study.methods) {
        if (!method.at_focus || !method.at_focus->step) continue;
        const Plan& plan = *method.at_focus;
        const StepTime& time = plan.step->time;
        std::vector<std::string> row{display_name(method.method)};
        for (std::size_t i = 0; i < part_count; ++i) {
            chart.parts[i].values.push_back(time.parts[i].exposed.value);
            row.push_back(fmt::format("{:.2f}", time.parts[i].exposed.value));
        }
        row.push_back(fmt::format("{:.2f}", time.seconds.value));
        row.emplace_back(plan.fits ? "yes" : "no");
        table.rows.push_back(row);
        most = std::max(most, time.seconds.value);
        chart.rows.push_back(display_name(method.method));
        chart.row_texts.push_back(duration(time.seconds) + (plan.fits ? "" : " \xE2\x9C\x95"));
        items.push_back(fmt::format("{} {}{}", display_name(method.method), duration(time.seconds),
                                    plan.fits ? "" : " (does not fit)"));
    }
    std::erase_if(chart.parts, [&](const BarChart::Part& part) {
        return std::all_of(part.values.begin(), part.values.end(), [&](double value) { return value < most * 5e-4; });
    });
    HtmlSection section{
        "where-time-goes", fmt::format("Where the time goes, at {}", short_tokens(study.focus)), {}, {}, {}};
    if (items.empty()) return section;
    const bool minutes = most > 600;
    if (minutes) {
        for (auto& part : chart.parts) {
            for (double& value : part.values) value /= 60;
        }
    }
    chart.x = {minutes ? "minutes of one step" : "seconds of one step", false, 0, most * 1.25 / (minutes ? 60 : 1), {}};
    section.figures.push_back(
        {"time", "One training step, by what it waits for",
         "Only what is exposed: work hidden behind other work takes no time here. A cross marks what does not fit: "
         "its time is what it would take.",
         fmt::format("Stacked bars of the time of one step: {}.", listed(items)), chart, table, false});
    return section;
}

HtmlSection layer_section(const Study& study) {
    const std::string method = display_name(study.methods[study.chosen].method);
    HtmlSection section{
        "one-layer", fmt::format("One layer of {}, at {}", method, short_tokens(study.focus)), {}, {}, {}};
    section.paragraphs.push_back(fmt::format(
        "The streams of one rank while a middle block runs, of {} alike. Gaps on the compute stream are waits.",
        study.model.layers - 2));
    std::size_t number = 0;
    for (const LayerTimeline::Pass& pass : study.layer->passes) {
        section.figures.push_back(pass_figure(pass, method, ++number));
    }
    return section;
}

}  // namespace headroom
