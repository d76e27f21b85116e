// SPDX-License-Identifier: Apache-2.0
#include "planner/json.hpp"
#include "planner/report.hpp"

namespace headroom {

namespace {

Json json_of(const MemoryPart& part) {
    return {{"group", to_string(part.group)}, {"name", part.name}, {"bytes", part.bytes.value}};
}

Json json_of(const DeviceMemory& device) {
    Json outside = Json::array();
    for (const OutsideTerm& term : device.outside)
        outside.push_back({{"name", term.name}, {"bytes", term.bytes.value}});
    Json parts = Json::array();
    for (const MemoryPart& part : device.parts) parts.push_back(json_of(part));
    return {{"capacity_bytes", device.capacity.value},
            {"usable_bytes", device.usable.value},
            {"peak_bytes", device.peak.value},
            {"peak_rank", device.peak_rank},
            {"rank0_peak_bytes", device.rank0_peak.value},
            {"peak_reserved_bytes", device.peak_reserved.value},
            {"unreturnable_bytes", device.unreturnable.value},
            {"outside_allocator_bytes", device.outside_allocator.value},
            {"fits", device.fits},
            {"phase", device.phase},
            {"peak_part", device.part},
            {"peak_tensor", json_of(device.last)},
            {"parts", std::move(parts)},
            {"outside_allocator", std::move(outside)}};
}

Json json_of(const HostMemory& host) {
    Json parts = Json::array();
    for (const HostPart& part : host.parts) {
        const char* place = part.place == Place::host_pinned ? "pinned" : "pageable";
        parts.push_back({{"name", part.name}, {"place", place}, {"bytes", part.bytes.value}});
    }
    return {{"capacity_bytes_per_node", host.capacity_per_node.value},
            {"usable_bytes_per_node", host.usable_per_node.value},
            {"peak_bytes_per_node", host.peak_per_node.value},
            {"pinned_bytes_per_node", host.pinned_per_node.value},
            {"pageable_bytes_per_node", host.pageable_per_node.value},
            {"fits", host.fits},
            {"parts", std::move(parts)}};
}

Json json_of(const StepPrediction& step) {
    const StepTime& time = step.time;
    Json parts = Json::array();
    for (std::size_t i = 0; i < part_count; ++i) {
        parts.push_back({{"name", part_names[i]},
                         {"seconds", time.parts[i].busy.value},
                         {"exposed_seconds", time.parts[i].exposed.value}});
    }
    return {
        {"seconds", time.seconds.value},
        {"seconds_range", {time.low.value, time.high.value}},
        {"tokens_per_second_per_gpu", step.tokens_per_second_per_gpu},
        {"tokens_per_second_per_gpu_range", {step.tokens_per_second_per_gpu_low, step.tokens_per_second_per_gpu_high}},
        {"tokens_per_second", step.tokens_per_second},
        {"mfu", step.mfu},
        {"mfu_convention", step.mfu_convention},
        {"hfu", step.hfu},
        {"slowest_rank", step.slowest_rank},
        {"inside_calibrated_domain", time.domain == 0},
        {"parts", std::move(parts)}};
}

Json json_of(const MaxContext& row) {
    Json json{{"method", to_string(row.method)}};
    json["recipe"] = row.valid ? json_of(setting_values(row.recipe)) : Json();
    json["max_context_tokens"] = row.context.value;
    json["max_context_tokens_by_memory"] = row.by_memory.value;
    json["limited_by"] = row.limited_by;
    json["plan"] = row.context.value > 0 ? json_of(row.plan) : Json();
    return json;
}

}  // namespace

Json json_of(const std::vector<NamedSetting>& settings) {
    Json json = Json::object();
    for (const NamedSetting& setting : settings) {
        if (std::holds_alternative<std::monostate>(setting.value)) continue;
        Json value;
        if (const auto* flag = std::get_if<bool>(&setting.value)) value = *flag;
        if (const auto* number = std::get_if<std::int64_t>(&setting.value)) value = *number;
        if (const auto* text = std::get_if<std::string>(&setting.value)) value = *text;
        const std::size_t dot = setting.key.find('.');
        if (dot == std::string_view::npos) {
            json[std::string(setting.key)] = std::move(value);
        } else {
            json[std::string(setting.key.substr(0, dot))][std::string(setting.key.substr(dot + 1))] = std::move(value);
        }
    }
    return json;
}

Json json_of(const Transformer& model) {
    return {{"name", model.name}, {"parameters", count_parameters(model).total()}};
}

Json json_of(const Cluster& cluster) {
    return {{"name", cluster.name}, {"nodes", cluster.nodes}, {"gpus", cluster.gpus()}};
}

Json json_of(const Plan& plan) {
    Json json;
    json["model"] = json_of(plan.model);
    json["cluster"] = json_of(plan.cluster);
    json["recipe"] = json_of(setting_values(plan.recipe));
    json["tokens_per_gpu"] = tokens_per_gpu(plan.recipe).value;
    json["data_parallel"] = data_parallel(plan.recipe, plan.cluster);
    json["sequences_per_step"] = sequences_at_once(plan.recipe, plan.cluster);
    json["tokens_per_step"] = tokens_per_step(plan.recipe, plan.cluster).value;
    json["fits"] = plan.fits;
    json["verdict"] = plan.verdict;
    json["beyond_shipped_code"] = text_or_null(plan.beyond_shipped_code);
    json["device_memory"] = json_of(plan.device);
    json["host_memory"] = json_of(plan.host);
    json["step"] = plan.step ? json_of(*plan.step) : Json();
    json["calibration"] = Json();
    if (plan.step) {
        json["calibration"] = {{"name", plan.step->calibration.name}, {"kind", plan.step->calibration.kind}};
    }
    json["warnings"] = plan.warnings;
    return json;
}

std::string document(const Json& json) { return json.dump(2, ' ', false, Json::error_handler_t::replace) + '\n'; }

std::string plan_json(const Plan& plan, const Suspects* suspects) {
    Json json{{"schema_version", schema_version}};
    json.update(json_of(plan));
    if (suspects != nullptr) json["which_tensor"] = json_of(*suspects);
    return document(json);
}

std::string max_context_json(const Bench& bench, const std::vector<MaxContext>& rows) {
    Json json{{"schema_version", schema_version}};
    json["model"] = json_of(bench.model);
    json["cluster"] = json_of(bench.cluster);
    json["methods"] = Json::array();
    for (const MaxContext& row : rows) json["methods"].push_back(json_of(row));
    return document(json);
}

}  // namespace headroom
