// SPDX-License-Identifier: Apache-2.0
#include "planner/report_what_if.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <functional>

#include "planner/json.hpp"
#include "planner/report.hpp"
#include "planner/report_recommend.hpp"
#include "reports/csv.hpp"
#include "reports/numbers.hpp"
#include "reports/table.hpp"

namespace headroom {

namespace {

constexpr std::size_t columns_per_table = 3;
constexpr std::size_t rows_per_table = 14;
constexpr std::size_t named_influences = 3;

using Write = std::function<std::string(double)>;

std::string gib_of(double bytes) { return fmt::format("{:.2f}", bytes / static_cast<double>(gibi)); }
std::string signed_gib_of(double bytes) { return fmt::format("{:+.2f}", bytes / static_cast<double>(gibi)); }
std::string seconds_of(double seconds) { return four_digits(seconds); }
std::string signed_seconds_of(double seconds) {
    return std::abs(seconds) < 5e-4 ? "0" : (seconds < 0 ? "-" : "+") + four_digits(std::abs(seconds));
}

/// "all-to-all" for all_to_all; names that are no part of a step stay.
std::string spoken_part(const std::string& name) {
    const auto found = std::find(part_names.begin(), part_names.end(), name);
    return found == part_names.end() ? name : std::string(spoken(static_cast<Part>(found - part_names.begin())));
}

/// "MLP in backward, block 1 of 32"
std::string place(const DeviceMemory& device) { return fmt::format("{} in {}", device.part, device.phase); }

/// Blocks of models that differ in their number correspond by segment.
bool same_place(const DeviceMemory& a, const DeviceMemory& b) {
    return a.part == b.part && a.segment == b.segment &&
           a.phase.substr(0, a.phase.find(',')) == b.phase.substr(0, b.phase.find(','));
}

/// Variants that stand beside each other in one table.
struct Block {
    const WhatIf& comparison;
    std::size_t first, last;

    Table table(const char* title) const {
        std::vector<Column> columns{{title, Align::left, true}, {"base", Align::right}};
        for (std::size_t i = first; i < last; ++i) columns.push_back({fmt::format("({})", i + 1), Align::right});
        return Table(columns);
    }

    std::string deltas(const char* title, const std::vector<DeltaRow>& rows, double least, const Write& base,
                       const Write& change) const {
        Table shown = table(title);
        std::size_t count = 0, left = 0;
        for (const DeltaRow& row : rows) {
            double largest = 0;
            for (std::size_t i = first; i < last; ++i) {
                largest = std::max(largest, std::abs(row.variants[i] - row.base));
            }
            if (largest < least) continue;
            if (count == rows_per_table) {
                ++left;
                continue;
            }
            ++count;
            std::vector<std::string> cells{spoken_part(row.name), base(row.base)};
            for (std::size_t i = first; i < last; ++i) cells.push_back(change(row.variants[i] - row.base));
            shown.row(cells);
        }
        if (count == 0) return "";
        return shown.text() +
               (left == 0 ? "\n" : fmt::format("and {} smaller ones, which --format json has\n\n", left));
    }

    /// Parts are named at the peak of each plan, and peaks may lie at different places, even within a phase.
    std::string places() const {
        const DeviceMemory& base = comparison.base.device;
        std::string text;
        for (std::size_t i = first; i < last; ++i) {
            const DeviceMemory& device = comparison.variants[i].plan.device;
            if (same_place(base, device)) continue;
            text += hanging(fmt::format("({}) the peak moved: from {} to {}", i + 1, place(base), place(device)));
        }
        if (text.empty()) return text;
        return text + paragraph("The parts above are then those of two different moments of the step.") + "\n";
    }

    std::string summary() const {
        Table shown = table("");
        const auto row = [&](const char* name, const std::function<std::string(const Plan&)>& write) {
            std::vector<std::string> cells{name, write(comparison.base)};
            for (std::size_t i = first; i < last; ++i) cells.push_back(write(comparison.variants[i].plan));
            shown.row(cells);
        };
        row("verdict", [](const Plan& p) { return std::string(p.fits ? "fits" : "does not fit"); });
        row("GPU peak, GiB", [](const Plan& p) { return gib(p.device.peak); });
        row("GPU margin, GiB",
            [](const Plan& p) { return gib(p.device.usable - p.device.peak - p.device.unreturnable); });
        row("host, GiB per node", [](const Plan& p) { return gib(p.host.peak_per_node); });
        row("step, s", [](const Plan& p) { return p.step ? seconds_of(p.step->time.seconds.value) : "-"; });
        row("tokens/s/GPU",
            [](const Plan& p) { return p.step ? four_digits(p.step->tokens_per_second_per_gpu) : "-"; });
        return shown.text() + "\n";
    }
};

std::string sentence(const Plan& base, const Variant& variant) {
    const double peak = static_cast<double>((variant.plan.device.peak - base.device.peak).value);
    std::string text =
        fmt::format("{}; the step's peak {} GiB ({})", verdict_change(base, variant.plan), signed_gib_of(peak),
                    signed_percent(peak / static_cast<double>(base.device.peak.value)));
    if (base.step && variant.plan.step) {
        text += fmt::format(
            ", speed {}",
            signed_percent(variant.plan.step->tokens_per_second_per_gpu / base.step->tokens_per_second_per_gpu - 1));
    }
    if (!variant.plan.beyond_shipped_code.empty()) {
        text += "; beyond the shipped code: " + variant.plan.beyond_shipped_code;
    }
    if (!variant.plan.fits) text += ". " + variant.plan.verdict;
    return text;
}

/// Where memory lacks, what gives some comes before what takes some.
std::vector<Influence> on_margin(const std::vector<Influence>& all, bool fits) {
    if (fits) return strongest_on_margin(all, named_influences);
    std::vector<Influence> more = all;
    std::vector<Influence> less = all;
    std::erase_if(more, [](const Influence& i) { return i.margin_more.value == 0; });
    std::erase_if(less, [](const Influence& i) { return i.margin_more.value > 0; });
    std::vector<Influence> list = strongest_on_margin(more, named_influences);
    for (Influence& i : strongest_on_margin(less, named_influences)) list.push_back(std::move(i));
    return list;
}

std::string influence_text(const std::vector<Influence>& all, bool fits, const Style& style) {
    if (all.empty()) return {};
    std::string text = style.strong("What moves the answer most") + "\n";
    Table table({{"constant or setting", Align::left, true},
                 {"kind"},
                 {"moves"},
                 {"down", Align::right},
                 {"up", Align::right}});
    const auto kind = [](const Influence& i) { return std::string(i.setting ? "setting" : "constant"); };
    const auto speed = [&] {
        for (const Influence& i : strongest_on_speed(all, named_influences)) {
            table.row({i.name, kind(i), "speed", signed_percent(i.slower), signed_percent(i.faster)});
        }
    };
    if (fits) speed();
    for (const Influence& i : on_margin(all, fits)) {
        table.row({i.name, kind(i), "GPU margin", signed_gib_of(-static_cast<double>(i.margin_less.value)),
                   signed_gib_of(static_cast<double>(i.margin_more.value))});
    }
    if (!fits) speed();
    return text + table.text();
}

Json rows_json(const std::vector<DeltaRow>& rows, const char* unit) {
    Json json = Json::array();
    for (const DeltaRow& row : rows) {
        Json changes = Json::array();
        for (const double value : row.variants) changes.push_back(value - row.base);
        json.push_back({{"name", row.name},
                        {fmt::format("base_{}", unit), row.base},
                        {fmt::format("change_{}", unit), std::move(changes)}});
    }
    return json;
}

}  // namespace

std::string what_if_text(const WhatIf& comparison, const std::vector<Influence>& influences, const Style& style) {
    const Plan& base = comparison.base;
    std::string text = base.fits ? "" : paragraph("The base " + base.verdict + ".") + "\n";
    text += bench_line(base.model, base.cluster) + recipe_lines(base.recipe, base.cluster);
    if (!base.beyond_shipped_code.empty()) text += paragraph("beyond the shipped code: " + base.beyond_shipped_code);
    text += "\n";
    for (std::size_t i = 0; i < comparison.variants.size(); ++i) {
        const Variant& variant = comparison.variants[i];
        text += hanging(fmt::format("({}) {}: {}", i + 1, printable(variant.label), sentence(base, variant)));
    }
    if (!comparison.variants.empty()) text += "\n";
    const std::vector<DeltaRow> memory = memory_deltas(comparison);
    const std::vector<DeltaRow> host = host_deltas(comparison);
    const std::vector<DeltaRow> time = time_deltas(comparison);
    constexpr double least_bytes = 0.005 * static_cast<double>(gibi);
    const double least_seconds = base.step ? 1e-4 * base.step->time.seconds.value : 0;
    for (std::size_t first = 0; first < comparison.variants.size(); first += columns_per_table) {
        const Block block{comparison, first, std::min(comparison.variants.size(), first + columns_per_table)};
        text += block.summary();
        text += block.deltas("GPU memory, GiB", memory, least_bytes, gib_of, signed_gib_of);
        text += block.places();
        text += block.deltas("host memory, GiB", host, least_bytes, gib_of, signed_gib_of);
        text += block.deltas("time exposed, s", time, least_seconds, seconds_of, signed_seconds_of);
    }
    text += influence_text(influences, base.fits, style);
    while (text.ends_with("\n\n")) text.pop_back();
    return text;
}

std::string what_if_json(const WhatIf& comparison, const std::vector<Influence>& influences) {
    Json json{{"schema_version", schema_version}};
    json["base"] = json_of(comparison.base);
    json["variants"] = Json::array();
    for (const Variant& variant : comparison.variants) {
        json["variants"].push_back({{"label", variant.label},
                                    {"verdict_change", verdict_change(comparison.base, variant.plan)},
                                    {"plan", json_of(variant.plan)}});
    }
    json["device_memory"] = rows_json(memory_deltas(comparison), "bytes");
    json["host_memory"] = rows_json(host_deltas(comparison), "bytes_per_node");
    json["step"] = rows_json(time_deltas(comparison), "exposed_seconds");
    if (!influences.empty()) {
        json["sensitivity"] = Json::array();
        for (const Influence& i : strongest_on_speed(influences, influences.size())) {
            json["sensitivity"].push_back({{"name", i.name},
                                           {"kind", i.setting ? "setting" : "constant"},
                                           {"speed_change_share", {i.slower, i.faster}},
                                           {"margin_change_bytes", {-i.margin_less.value, i.margin_more.value}}});
        }
    }
    return document(json);
}

std::string what_if_csv(const WhatIf& comparison) {
    const auto row = [](const std::string& label, const Plan& plan, bool heading) {
        const std::string text = plan_csv(plan);
        const std::size_t end = text.find('\n') + 1;
        return (heading ? "variant," + text.substr(0, end) : "") + csv_field(label) + "," + text.substr(end);
    };
    std::string text = row("base", comparison.base, true);
    for (const Variant& variant : comparison.variants) text += row(variant.label, variant.plan, false);
    return text;
}

}  // namespace headroom
