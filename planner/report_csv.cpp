// SPDX-License-Identifier: Apache-2.0
// Columns: what was asked (inputs), then `status` and `reason`, then what came out. A cell that does not apply is
// empty.
#include <fmt/core.h>

#include <algorithm>
#include <utility>

#include "planner/report.hpp"
#include "planner/setting_values.hpp"
#include "reports/csv.hpp"

namespace headroom {

namespace {

/// Cells by column name; one row makes both the heading and its line.
using Row = std::vector<std::pair<std::string, std::string>>;

std::string number(std::int64_t value) { return std::to_string(value); }
std::string real(double value) { return fmt::format("{}", value); }
std::string truth(bool value) { return value ? "true" : "false"; }

std::string column_name(std::string_view key) {
    if (key == "context") return "context_tokens";
    std::string name(key);
    std::replace(name.begin(), name.end(), '.', '_');
    return name;
}

void append_inputs(Row& row, const Transformer& model, const Cluster& cluster, const Recipe* recipe, Method method) {
    row.emplace_back("model", model.name);
    row.emplace_back("parameters", number(count_parameters(model).total()));
    row.emplace_back("cluster", cluster.name);
    row.emplace_back("nodes", number(cluster.nodes));
    row.emplace_back("gpus", number(cluster.gpus()));
    for (const NamedSetting& setting : recipe ? setting_values(*recipe) : setting_values(Settings{})) {
        const bool only_method = !recipe && setting.key == "method";
        row.emplace_back(column_name(setting.key),
                         only_method ? std::string(to_string(method)) : to_string(setting.value));
    }
}

void append_results(Row& row, const Plan* plan) {
    const auto cell = [&](const char* name, auto value) {
        row.emplace_back(name, plan ? value(*plan) : std::string());
    };
    cell("tokens_per_gpu", [](const Plan& p) { return number(tokens_per_gpu(p.recipe).value); });
    cell("data_parallel", [](const Plan& p) { return number(data_parallel(p.recipe, p.cluster)); });
    cell("tokens_per_step", [](const Plan& p) { return number(tokens_per_step(p.recipe, p.cluster).value); });
    cell("device_capacity_bytes", [](const Plan& p) { return number(p.device.capacity.value); });
    cell("device_usable_bytes", [](const Plan& p) { return number(p.device.usable.value); });
    cell("device_peak_bytes", [](const Plan& p) { return number(p.device.peak.value); });
    cell("device_peak_rank", [](const Plan& p) { return number(p.device.peak_rank); });
    cell("device_rank0_peak_bytes", [](const Plan& p) { return number(p.device.rank0_peak.value); });
    cell("device_peak_reserved_bytes", [](const Plan& p) { return number(p.device.peak_reserved.value); });
    cell("device_outside_allocator_bytes", [](const Plan& p) { return number(p.device.outside_allocator.value); });
    cell("device_fits", [](const Plan& p) { return truth(p.device.fits); });
    cell("phase", [](const Plan& p) { return p.device.phase; });
    cell("host_capacity_bytes_per_node", [](const Plan& p) { return number(p.host.capacity_per_node.value); });
    cell("host_peak_bytes_per_node", [](const Plan& p) { return number(p.host.peak_per_node.value); });
    cell("host_pinned_bytes_per_node", [](const Plan& p) { return number(p.host.pinned_per_node.value); });
    cell("host_pageable_bytes_per_node", [](const Plan& p) { return number(p.host.pageable_per_node.value); });
    cell("host_fits", [](const Plan& p) { return truth(p.host.fits); });
}

void append_step(Row& row, const Plan* plan) {
    const StepPrediction* step = plan && plan->step ? &*plan->step : nullptr;
    const auto cell = [&](std::string name, auto value) {
        row.emplace_back(std::move(name), step ? value(*step) : std::string());
    };
    using S = StepPrediction;
    cell("step_seconds", [](const S& s) { return real(s.time.seconds.value); });
    cell("step_seconds_low", [](const S& s) { return real(s.time.low.value); });
    cell("step_seconds_high", [](const S& s) { return real(s.time.high.value); });
    cell("tokens_per_second_per_gpu", [](const S& s) { return real(s.tokens_per_second_per_gpu); });
    cell("tokens_per_second_per_gpu_low", [](const S& s) { return real(s.tokens_per_second_per_gpu_low); });
    cell("tokens_per_second_per_gpu_high", [](const S& s) { return real(s.tokens_per_second_per_gpu_high); });
    cell("tokens_per_second", [](const S& s) { return real(s.tokens_per_second); });
    cell("mfu", [](const S& s) { return real(s.mfu); });
    cell("mfu_convention", [](const S& s) { return s.mfu_convention; });
    cell("hfu", [](const S& s) { return real(s.hfu); });
    cell("slowest_rank", [](const S& s) { return number(s.slowest_rank); });
    for (std::size_t i = 0; i < part_count; ++i) {
        const std::string part = "step_" + std::string(part_names[i]);
        cell(part + "_seconds", [i](const S& s) { return real(s.time.parts[i].busy.value); });
        cell(part + "_exposed_seconds", [i](const S& s) { return real(s.time.parts[i].exposed.value); });
    }
    cell("calibration", [](const S& s) { return s.calibration.name; });
    cell("calibration_kind", [](const S& s) { return s.calibration.kind; });
    cell("inside_calibrated_domain", [](const S& s) { return truth(s.time.domain == 0); });
}

std::string csv_document(const std::vector<Row>& rows) {
    std::string text;
    std::vector<std::string> fields;
    for (const Row& row : rows) {
        if (text.empty()) {
            for (const auto& [name, value] : row) fields.push_back(name);
            text += csv_line(fields);
        }
        fields.clear();
        for (const auto& [name, value] : row) fields.push_back(value);
        text += csv_line(fields);
    }
    return text;
}

}  // namespace

std::string plan_csv(const Plan& plan) {
    Row row;
    append_inputs(row, plan.model, plan.cluster, &plan.recipe, plan.recipe.method);
    row.emplace_back("status", plan.fits ? "fits" : "does_not_fit");
    row.emplace_back("reason", plan.fits ? "" : plan.verdict);
    row.emplace_back("beyond_shipped_code", plan.beyond_shipped_code);
    append_results(row, &plan);
    append_step(row, &plan);
    return csv_document({row});
}

std::string max_context_csv(const Bench& bench, const std::vector<MaxContext>& rows) {
    std::vector<Row> table;
    for (const MaxContext& found : rows) {
        Row& row = table.emplace_back();
        append_inputs(row, bench.model, bench.cluster, found.valid ? &found.recipe : nullptr, found.method);
        // The context is what was looked for: a result here, not an input.
        std::erase_if(row, [](const auto& cell) { return cell.first == "context_tokens"; });
        const char* status = found.context.value > 0 ? "fits" : "does_not_fit";
        row.emplace_back("status", found.valid ? status : "invalid");
        row.emplace_back("max_context_tokens", found.valid ? number(found.context.value) : "");
        row.emplace_back("max_context_tokens_by_memory", found.valid ? number(found.by_memory.value) : "");
        row.emplace_back("limited_by", found.limited_by);
        row.emplace_back("beyond_shipped_code", found.plan.beyond_shipped_code);
        append_results(row, found.context.value > 0 ? &found.plan : nullptr);
        append_step(row, found.context.value > 0 ? &found.plan : nullptr);
    }
    return csv_document(table);
}

}  // namespace headroom
