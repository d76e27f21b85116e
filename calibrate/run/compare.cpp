// SPDX-License-Identifier: Apache-2.0
#include "calibrate/run/compare.hpp"

#include <fmt/format.h>

#include <fstream>

#include "configs/load.hpp"
#include "models/settings.hpp"

namespace headroom {
namespace {

double relative(double measured, double predicted) { return predicted == 0 ? 0 : measured / predicted - 1; }

/// Sets `predicted` and the error of what stands under `measured`.
void judge(Json& json, const char* predicted, const char* measured, double value) {
    json[predicted] = value;
    json["error"] = relative(json[measured].get<double>(), value);
}

}  // namespace

std::vector<Json> read_run_file(const std::string& path) {
    std::ifstream in(path, std::ios::binary);
    if (!in) throw Error("cannot read the file", path, "name what headroom calibrate run wrote", ExitCode::failure);
    std::vector<Json> records;
    std::string line;
    for (int number = 1; std::getline(in, line); ++number) {
        Json record = Json::parse(line, nullptr, false);
        if (record.is_discarded() && in.eof()) break;  // cut while it was written
        if (!record.is_object() || !record.contains("record")) {
            throw Error("this line is no record", fmt::format("{}:{}", path, number),
                        "name what headroom calibrate run wrote");
        }
        if (record["record"] == "run") records.push_back(std::move(record));
    }
    return records;
}

RunCase case_of(const Json& record) {
    RunCase one;
    one.name = record.at("name");
    one.model = load_model(record.at("model"));
    one.model.layers = record.at("layers");
    one.cluster = load_cluster(record.at("cluster"));
    one.cluster.nodes = 1;
    one.cluster.gpus_per_node = record.at("gpus");
    one.blocks_only = record.at("blocks_only");
    Settings settings;
    for (const auto& [key, value] : record.at("recipe").items()) set(settings, key + "=" + value.get<std::string>());
    one.recipe = resolve(settings, published_recipe(settings.method.value()), one.model, one.cluster);
    return one;
}

Json predicted_again(const Json& record, const Calibration& calibration) {
    if (record.at("status") != "ok") return record;
    const CasePlan plan = predict_case(case_of(record), calibration);
    const RankPlan& slow = plan.slowest();
    Json again = record;
    again["calibration"] = calibration.name;
    const std::int64_t peak = plan.largest().memory.device_peak.value;
    judge(again["memory"], "predicted_peak_bytes", "measured_peak_bytes", static_cast<double>(peak));
    again["memory"]["predicted_peak_bytes"] = peak;
    judge(again["time"], "predicted_seconds", "measured_seconds", slow.step.seconds.value);
    again["time"]["predicted_seconds_range"] = {slow.step.low.value, slow.step.high.value};
    const RankPlan& rank = plan.ranks.at(record.at("parts_of_rank").get<std::size_t>());
    for (Json& part : again["parts"]) {
        for (std::size_t i = 0; i < part_count; ++i) {
            if (part["part"] != to_string(static_cast<Part>(i))) continue;
            judge(part, "predicted_seconds", "measured_seconds", rank.step.parts[i].busy.value);
            part["predicted_exposed_seconds"] = rank.step.parts[i].exposed.value;
        }
    }
    for (Json& op : again["ops"]) {
        double seconds = 0;
        for (const PredictedOp& wanted : rank.ops) seconds += op["name"] == wanted.name ? wanted.seconds : 0;
        judge(op, "predicted_seconds", "measured_seconds", seconds);
    }
    return again;
}

}  // namespace headroom
