// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "planner/json.hpp"
#include "planner/report.hpp"
#include "planner/validate.hpp"
#include "reports/csv.hpp"
#include "reports/numbers.hpp"
#include "reports/table.hpp"

namespace headroom {
namespace {

constexpr std::string_view agreement_names[]{"right", "said_fits_and_failed", "refused_though_it_ran", "unchecked"};
constexpr std::string_view status_names[]{"ok", "oom", "not_run"};
std::string name_of(Agreement agreement) { return std::string(agreement_names[static_cast<std::size_t>(agreement)]); }
std::string name_of(RunStatus status) { return std::string(status_names[static_cast<std::size_t>(status)]); }

std::string number(double value) {
    if (std::abs(value) >= 1e5) return with_separators(std::llround(value));
    return fmt::format("{:.2f}", value);
}

std::string percent(double error) { return fmt::format("{:+.1f}", error); }
std::string percent(const std::optional<double>& error) { return error ? percent(*error) : "-"; }

std::string method_of(const Comparison& row) { return std::string(to_string(*row.measured.said.method)); }

std::string setting_line(const Comparison& row) {
    const Measurement& run = row.measured;
    return fmt::format("{} on {} x {}, {} at {} tokens", run.model_name, run.cluster.gpus(), run.cluster_name,
                       method_of(row), with_separators(run.said.context->value));
}

std::string wrong_verdicts(const Validation& validation) {
    std::string text;
    for (const Agreement kind : {Agreement::said_fits_and_failed, Agreement::refused_though_it_ran}) {
        if (validation.count(kind) == 0) continue;
        text += kind == Agreement::said_fits_and_failed ? "\nSaid to fit, and failed\n" : "\nRefused, though it ran\n";
        for (const Comparison& row : validation.comparisons) {
            if (row.agreement != kind) continue;
            text += paragraph(fmt::format("{}: {}", printable(row.measured.id), printable(setting_line(row))), "  ");
            text += paragraph(printable(row.verdict), "    ");
        }
    }
    return text;
}

/// "allocated GiB"; what is counted in bytes is shown in GiB.
std::string label_of(const Metric& metric) {
    static constexpr std::pair<Figure, std::string_view> labels[]{
        {Figure::peak, "peak"},
        {Figure::peak_allocated, "allocated"},
        {Figure::peak_reserved, "reserved"},
        {Figure::device_used, "in use"},
        {Figure::states, "states"},
        {Figure::attention, "attention"},
        {Figure::other, "other"},
        {Figure::host_memory, "host"},
        {Figure::host_pageable, "pageable"},
        {Figure::max_context, "longest"},
        {Figure::step_seconds, "step s"},
        {Figure::model_tflops, "TFLOPS/GPU"},
        {Figure::tokens_per_second, "tokens/s"},
        {Figure::tokens_per_second_per_gpu, "tokens/s/GPU"},
    };
    for (const auto& [figure, label] : labels) {
        if (figure != metric.figure) continue;
        if (!is_memory(figure)) return std::string(label);
        const std::string unit = metric.name.substr(metric.name.rfind('_') + 1);
        if (unit == "bytes") return fmt::format("{} GiB", label);
        return fmt::format("{} {}{}B", label, static_cast<char>(unit.front() - 'a' + 'A'), unit.size() == 3 ? "i" : "");
    }
    return metric.name;
}

std::string shown(const Metric& metric, double value) {
    if (metric.figure == Figure::max_context) return approximate_tokens(Tokens{std::llround(value)});
    if (is_memory(metric.figure) && metric.unit == 1) return number(value / static_cast<double>(gibi));
    return number(value);
}

std::string predicted_text(const Comparison& row) {
    if (!row.predicted) return row.valid ? "-" : "refused";
    const Metric& metric = row.measured.metric;
    return shown(metric, *row.predicted) + (row.predicted_high ? ".." + shown(metric, *row.predicted_high) : "");
}

/// Without the name of its set, and short enough for a line; JSON and CSV have it whole.
std::string short_id(const Measurement& run) {
    constexpr std::size_t longest = 34;
    std::string id = printable(run.id);
    if (id.starts_with(run.set + "-")) id.erase(0, run.set.size() + 1);
    return id.size() <= longest ? id : id.substr(0, longest - 1) + "~";
}

std::string error_table(const Validation& validation, const std::string& set) {
    Table table({{"run", Align::left, false},
                 {"figure", Align::left, true},
                 {"measured", Align::right, false},
                 {"predicted", Align::right, false},
                 {"error %", Align::right, false}});
    std::size_t rows = 0;
    for (const Comparison& row : validation.comparisons) {
        const Measurement& run = row.measured;
        if (run.set != set || !run.value || (!row.predicted && row.valid)) continue;
        table.row({short_id(run), label_of(run.metric), shown(run.metric, *run.value), predicted_text(row),
                   percent(row.error_percent)});
        ++rows;
    }
    return rows == 0 ? "" : "\nFigures of " + printable(set) + "\n" + table.text(page_width, 2);
}

std::string error_tables(const Validation& validation) {
    std::vector<std::string> sets;
    for (const Comparison& row : validation.comparisons) {
        if (std::find(sets.begin(), sets.end(), row.measured.set) == sets.end()) sets.push_back(row.measured.set);
    }
    std::string text;
    for (const std::string& set : sets) text += error_table(validation, set);
    if (text.empty()) return "";
    return text + "\n" +
           paragraph(
               "A peak whose kind is not stated is compared with the range from allocated to in use; a stated "
               "longest context with the longest that fits. Neither counts in the summary.");
}

std::string summary_table(const char* title, const Summaries& summaries) {
    if (summaries.overall.count == 0) return "";
    Table table({{"method", Align::left, false},
                 {"figures", Align::right, false},
                 {"median %", Align::right, false},
                 {"mean |%|", Align::right, false},
                 {"worst %", Align::right, false},
                 {"in", Align::left, true}});
    std::vector<ErrorSummary> lines = summaries.by_method;
    lines.push_back(summaries.overall);
    for (const ErrorSummary& line : lines) {
        table.row({line.name, std::to_string(line.count), percent(line.median),
                   fmt::format("{:.1f}", line.mean_absolute), percent(line.worst),
                   printable(line.worst_id).substr(0, 30)});
    }
    return fmt::format("\n{}\n{}", title, table.text(page_width, 2));
}

std::string notes_section(const Validation& validation) {
    std::string text;
    for (const Comparison& row : validation.comparisons) {
        for (const std::string& note : row.notes) {
            text += paragraph(fmt::format("{}: {}", printable(row.measured.id), printable(note)), "note: ");
        }
    }
    return text.empty() ? "" : "\n" + text;
}

std::string unexpressed_section(const Validation& validation) {
    if (validation.not_expressed.empty()) return "";
    Table table({{"entries", Align::right}, {"not expressed because", Align::left, true}});
    for (const Unexpressed& group : validation.not_expressed) {
        table.row({std::to_string(group.ids.size()), printable(group.reason)});
    }
    return "\nNot compared\n" + table.text(page_width, 2);
}

Json json_of(const ErrorSummary& summary) {
    return {{"name", summary.name},
            {"figures", summary.count},
            {"median_error_percent", summary.median},
            {"mean_absolute_error_percent", summary.mean_absolute},
            {"worst_error_percent", summary.worst},
            {"worst_id", summary.worst_id}};
}

Json json_of(const Summaries& summaries) {
    Json json;
    json["by_method"] = Json::array();
    for (const ErrorSummary& summary : summaries.by_method) json["by_method"].push_back(json_of(summary));
    json["overall"] = json_of(summaries.overall);
    return json;
}

Json json_of(const std::optional<double>& value) { return value ? Json(*value) : Json(nullptr); }

Json json_of(const Comparison& row) {
    const Measurement& run = row.measured;
    return {{"id", run.id},
            {"set", run.set},
            {"source", run.source},
            {"location", run.location},
            {"confidence", run.confidence},
            {"model", run.model_name},
            {"cluster", run.cluster_name},
            {"nodes", run.cluster.nodes},
            {"gpus", run.cluster.gpus()},
            {"method", method_of(row)},
            {"context", run.said.context->value},
            {"status", name_of(run.status)},
            {"agreement", name_of(row.agreement)},
            {"verdict", row.verdict},
            {"metric", run.metric.name},
            {"measured", json_of(run.value)},
            {"predicted", json_of(row.predicted)},
            {"predicted_high", json_of(row.predicted_high)},
            {"error_percent", json_of(row.error_percent)},
            {"interval_low", json_of(row.interval_low)},
            {"interval_high", json_of(row.interval_high)},
            {"notes", row.notes}};
}

/// Of a CSV row, by column.
struct Cell {
    const char* name;
    std::string value;
};

std::vector<Cell> cells_of(const Comparison& row) {
    const auto number = [](const std::optional<double>& value) { return value ? fmt::format("{}", *value) : ""; };
    const Measurement& run = row.measured;
    return {{"id", run.id},
            {"set", run.set},
            {"source", run.source},
            {"location", run.location},
            {"confidence", run.confidence},
            {"model", run.model_name},
            {"cluster", run.cluster_name},
            {"nodes", std::to_string(run.cluster.nodes)},
            {"gpus", std::to_string(run.cluster.gpus())},
            {"method", method_of(row)},
            {"context_tokens", run.said.context ? std::to_string(run.said.context->value) : ""},
            {"status", name_of(run.status)},
            {"agreement", name_of(row.agreement)},
            {"verdict", row.verdict},
            {"metric", run.metric.name},
            {"measured", number(run.value)},
            {"predicted", number(row.predicted)},
            {"predicted_high", number(row.predicted_high)},
            {"error_percent", number(row.error_percent)},
            {"interval_low", number(row.interval_low)},
            {"interval_high", number(row.interval_high)},
            {"notes", fmt::format("{}", fmt::join(row.notes, "; "))}};
}

}  // namespace

std::string validation_text(const Validation& validation) {
    std::set<std::string> sources;
    for (const Comparison& row : validation.comparisons) sources.insert(row.measured.source);
    std::size_t unexpressed = 0;
    for (const Unexpressed& group : validation.not_expressed) unexpressed += group.ids.size();
    std::string text =
        paragraph(fmt::format("{} entries of {} source{} compared, {} not.", validation.comparisons.size(),
                              sources.size(), sources.size() == 1 ? "" : "s", unexpressed));
    text += paragraph(fmt::format("Verdicts: {} right, {} said to fit that failed, {} refused that ran, {} unknown.",
                                  validation.count(Agreement::right), validation.count(Agreement::said_fits_and_failed),
                                  validation.count(Agreement::refused_though_it_ran),
                                  validation.count(Agreement::unchecked)));
    if (validation.without_prediction > 0) {
        text += paragraph(
            fmt::format("{} figures have no prediction: rates of the source's own convention, or speeds of machines "
                        "without constants.",
                        validation.without_prediction));
    }
    text += wrong_verdicts(validation) + error_tables(validation);
    text += summary_table("Errors of memory by method", validation.memory);
    text += summary_table("Errors of time by method", validation.time);
    if (validation.with_interval > 0) {
        text += fmt::format("  {} of {} measured times lie in the interval that was predicted.\n",
                            validation.inside_interval, validation.with_interval);
    }
    return text + notes_section(validation) + unexpressed_section(validation);
}

std::string validation_json(const Validation& validation) {
    Json json{{"schema_version", schema_version}};
    Json& verdicts = json["verdicts"];
    for (const Agreement kind :
         {Agreement::right, Agreement::said_fits_and_failed, Agreement::refused_though_it_ran, Agreement::unchecked}) {
        verdicts[name_of(kind)] = validation.count(kind);
    }
    json["memory"] = json_of(validation.memory);
    json["time"] = json_of(validation.time);
    json["time"]["with_interval"] = validation.with_interval;
    json["time"]["inside_interval"] = validation.inside_interval;
    json["comparisons"] = Json::array();
    for (const Comparison& row : validation.comparisons) json["comparisons"].push_back(json_of(row));
    json["not_expressed"] = Json::array();
    for (const Unexpressed& group : validation.not_expressed) {
        json["not_expressed"].push_back({{"reason", group.reason}, {"ids", group.ids}});
    }
    json["warnings"] = validation.warnings;
    return document(json);
}

std::string validation_csv(const Validation& validation) {
    std::vector<std::string> fields;
    for (const Cell& cell : cells_of({})) fields.emplace_back(cell.name);
    std::string text = csv_line(fields);
    for (const Comparison& row : validation.comparisons) {
        fields.clear();
        for (const Cell& cell : cells_of(row)) fields.push_back(cell.value);
        text += csv_line(fields);
    }
    return text;
}

}  // namespace headroom
