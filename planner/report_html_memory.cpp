// SPDX-License-Identifier: Apache-2.0
// What the page says about memory: how far the context goes, and what fills a GPU on the way.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "planner/report.hpp"
#include "planner/report_html.hpp"
#include "reports/numbers.hpp"

namespace headroom {
namespace {

/// Groups that the figure keeps together, in the order of the stack.
struct Layer {
    const char* name;
    int slot;
    std::vector<Group> groups;
};

const std::vector<Layer>& layers() {
    static const std::vector<Layer> list{
        {"optimizer states", 0, {Group::states}},
        {"weights and gradients", 1, {Group::parameters, Group::gradients}},
        {"attention", 2, {Group::attention}},
        {"communication buffers", 3, {Group::communication}},
        {"MLP, norms and loss", 4, {Group::mlp, Group::norm, Group::loss}},
        {"hidden states", 5, {Group::saved, Group::residual}},
        {"tables and workspaces", 6, {Group::tables, Group::workspace}},
    };
    return list;
}

constexpr const char* outside_name = "outside the allocator";
constexpr const char* stuck_name = "stuck in the cache";

/// GiB by layer, then outside and stuck: sums to `needed`.
std::vector<Bytes> layer_bytes(const Plan& plan) {
    std::vector<Bytes> bytes;
    for (const Layer& layer : layers()) {
        Bytes sum;
        for (const MemoryPart& part : plan.device.parts) {
            if (std::find(layer.groups.begin(), layer.groups.end(), part.group) != layer.groups.end()) {
                sum += part.bytes;
            }
        }
        bytes.push_back(sum);
    }
    bytes.push_back(plan.device.outside_allocator);
    bytes.push_back(plan.device.unreturnable);
    return bytes;
}

std::vector<HtmlTable::Column> number_columns(const std::string& first, const std::vector<std::string>& numbers) {
    std::vector<HtmlTable::Column> columns{{first, false}};
    for (const std::string& title : numbers) columns.push_back({title, true});
    return columns;
}

HtmlTable longest_table(const Study& study) {
    HtmlTable table{"Longest context of each method, and what stops it there",
                    {{"Method", false},
                     {"Tokens", true},
                     {"Tokens per GPU", true},
                     {"Tokens/s per GPU", true},
                     {"Configuration", false},
                     {"Stopped by", false}},
                    {}};
    for (const MethodStudy& method : study.methods) {
        const MaxContext& longest = method.longest;
        const bool fits = longest.context.value > 0;
        const bool timed = fits && longest.plan.step.has_value();
        table.rows.push_back({display_name(method.method), with_separators(longest.context.value),
                              fits ? with_separators(tokens_per_gpu(longest.recipe).value) : "",
                              timed ? three_digits(longest.plan.step->tokens_per_second_per_gpu) : "",
                              fits ? degrees(longest.recipe) : "", longest.limited_by});
    }
    for (const MethodStudy& method : study.refused) {
        table.rows.push_back({display_name(method.method), "cannot run", "", "", "", method.longest.limited_by});
    }
    return table;
}

}  // namespace

std::string capacity_label(const Cluster& cluster) { return fmt::format("GPU: {} GiB", gib(cluster.device_memory)); }

Axis linear_token_axis(Tokens most) {
    std::int64_t step = 16 * kibi;
    while (most.value / step > 7) step *= 2;
    Axis axis{"tokens of one sequence, over all GPUs", false, 0, static_cast<double>(most.value) * 1.16, {}};
    for (std::int64_t at = 0; static_cast<double>(at) <= axis.most; at += step) {
        axis.ticks.emplace_back(static_cast<double>(at), short_tokens({at}));
    }
    return axis;
}

HtmlSection longest_section(const Study& study) {
    BarChart chart;
    std::vector<std::string> items;
    BarChart::Part part{"longest context", {}, {}};
    Tokens most{1};
    for (const MethodStudy& method : study.methods) {
        const Tokens context = method.longest.context;
        most = std::max(most, context);
        chart.rows.push_back(display_name(method.method));
        chart.row_texts.push_back(context.value > 0 ? approximate_tokens(context) : "does not fit");
        chart.row_colours.push_back(colour_of(method.method));
        part.values.push_back(static_cast<double>(context.value));
        items.push_back(fmt::format("{} {}", chart.rows.back(), chart.row_texts.back()));
    }
    chart.parts.push_back(part);
    chart.x = linear_token_axis(most);
    HtmlSection section{"longest-context", "How far each method goes", {}, {}, {}};
    const auto usp = std::find_if(study.methods.begin(), study.methods.end(),
                                  [](const MethodStudy& method) { return method.method == Method::usp; });
    if (usp != study.methods.end() && usp->at_focus && usp->at_focus->recipe.ring == 1) {
        section.paragraphs.emplace_back(
            "USP has no ring here and is Ulysses: the two coincide in all figures. It differs with --ring or on more "
            "nodes.");
    }
    section.figures.push_back({"longest", "Longest context that fits",
                               "Each method with its published settings, degrees chosen for this model and cluster.",
                               fmt::format("Bars of the longest context in tokens: {}.", listed(items)), chart,
                               longest_table(study), false});
    return section;
}

HtmlSection memory_section(const Study& study) {
    std::vector<std::string> names;
    for (const Layer& layer : layers()) names.emplace_back(layer.name);
    names.emplace_back(outside_name);
    names.emplace_back(stuck_name);
    BarChart chart;
    std::vector<std::string> titles = names;
    titles.emplace_back("Needed");
    HtmlTable table{"GiB on the worst rank at the peak of a step", number_columns("Method", titles), {}};
    table.columns.push_back({"Peak at", false});
    std::vector<std::string> items;
    double most = in_gib(study.cluster.device_memory);
    for (std::size_t i = 0; i < names.size(); ++i) {
        const int slot = i < layers().size() ? layers()[i].slot : static_cast<int>(i);
        chart.parts.push_back({names[i], {Colour::Family::part, slot}, {}});
    }
    for (const MethodStudy& method : study.methods) {
        if (!method.at_focus) {
            std::vector<std::string> row(table.columns.size());
            row.front() = display_name(method.method);
            row.back() = "cannot run: " + method.refusal;
            table.rows.push_back(row);
            continue;
        }
        const Plan& plan = *method.at_focus;
        const std::vector<Bytes> bytes = layer_bytes(plan);
        const std::vector<Centigib> shown = apportion(in_centigib(needed(plan)), bytes);
        std::vector<std::string> row{display_name(method.method)};
        for (std::size_t i = 0; i < bytes.size(); ++i) {
            chart.parts[i].values.push_back(in_gib(bytes[i]));
            row.push_back(centigib(shown[i]));
        }
        row.push_back(gib(needed(plan)));
        row.push_back(plan.device.phase);
        table.rows.push_back(row);
        most = std::max(most, in_gib(needed(plan)));
        chart.rows.push_back(display_name(method.method));
        chart.row_texts.push_back(fmt::format("{:.1f} GiB", in_gib(needed(plan))));
        items.push_back(fmt::format("{} {:.1f} GiB", display_name(method.method), in_gib(needed(plan))));
    }
    // Parts that are nothing everywhere would only fill the legend.
    std::erase_if(chart.parts, [](const BarChart::Part& part) {
        return std::all_of(part.values.begin(), part.values.end(), [](double value) { return value < 0.005; });
    });
    chart.x = {"GiB on the worst rank", false, 0, most * 1.12, {}};
    chart.limit = Limit{in_gib(study.cluster.device_memory), capacity_label(study.cluster)};
    HtmlSection section{
        "memory-at-peak", fmt::format("Memory at the peak, at {}", short_tokens(study.focus)), {}, {}, {}};
    section.figures.push_back(
        {"memory", "What fills a GPU at the peak of a step",
         "The peak falls into another phase for each method; the table names it. Outside the allocator are the CUDA "
         "context and NCCL's buffers. A bar that crosses the line does not fit.",
         fmt::format("Stacked bars of GPU memory at {} tokens, of {:.1f} GiB that a GPU has: {}.",
                     short_tokens(study.focus), in_gib(study.cluster.device_memory), listed(items)),
         chart, table, false});
    return section;
}

HtmlSection memory_curve_section(const Study& study) {
    LineChart chart;
    HtmlTable table{"GiB needed on the worst rank, by context",
                    {{"Method and context", false}, {"Tokens", true}, {"Needed, GiB", true}, {"Fits", false}},
                    {}};
    Tokens most{study.focus};
    std::vector<std::string> items;
    for (const MethodStudy& method : study.methods) {
        Line line{display_name(method.method), colour_of(method.method), {}, 0, true, "", ~std::size_t{0}};
        for (const StudyPoint& point : method.curve) {
            line.points.push_back(
                {static_cast<double>(point.context.value), in_gib(point.need), std::nullopt, std::nullopt});
            line.solid += point.fits ? 1 : 0;
            most = std::max(most, point.context);
            table.rows.push_back({fmt::format("{}, {}", display_name(method.method), approximate_tokens(point.context)),
                                  with_separators(point.context.value), gib(point.need), point.fits ? "yes" : "no"});
        }
        if (line.solid > 0) {
            const StudyPoint& first = method.curve.front();
            const StudyPoint& last = method.curve[line.solid - 1];
            items.push_back(fmt::format("{} from {:.1f} GiB at {} to {:.1f} GiB at {}", line.name, in_gib(first.need),
                                        approximate_tokens(first.context), in_gib(last.need),
                                        approximate_tokens(last.context)));
        }
        if (!line.points.empty()) chart.lines.push_back(std::move(line));
    }
    chart.x = linear_token_axis(most);
    chart.x.most = static_cast<double>(most.value) * 1.02;
    std::erase_if(chart.x.ticks, [&](const auto& tick) { return tick.first > chart.x.most; });
    const double capacity = in_gib(study.cluster.device_memory);
    chart.y = {"GiB on the worst rank", false, 0, std::ceil(capacity * 1.25 / 10) * 10, {}};
    chart.limit = Limit{capacity, capacity_label(study.cluster)};
    HtmlSection section{"memory-by-context", "Memory against context", {}, {}, {}};
    section.figures.push_back(
        {"memory-curve", "Memory needed, by context",
         "A bar across a line marks the longest context that fits; dashes lead on to one that "
         "does not. Where a line ends below the limit, the table of longest contexts says why.",
         fmt::format("Lines of GPU memory over context, with a limit at {:.1f} GiB: {}.", capacity, listed(items)),
         chart, table, false});
    return section;
}

}  // namespace headroom
