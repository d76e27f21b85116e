// SPDX-License-Identifier: Apache-2.0
#include <fmt/core.h>

#include <algorithm>

#include "planner/json.hpp"
#include "planner/report.hpp"
#include "planner/report_recommend.hpp"
#include "reports/csv.hpp"
#include "reports/numbers.hpp"
#include "reports/table.hpp"

namespace headroom {

namespace {

Json speed_json(const Candidate& candidate) {
    const StepTime& step = candidate.evaluation.step;
    const auto speed = [&](Seconds seconds) { return tokens_per_second_per_gpu(candidate.recipe, seconds); };
    return {{"peak_bytes", candidate.evaluation.memory.device_peak.value},
            {"host_peak_bytes_per_node", candidate.evaluation.memory.host_peak_per_node.value},
            {"step_seconds", step.seconds.value},
            {"tokens_per_second_per_gpu", candidate.speed},
            {"tokens_per_second_per_gpu_range", {speed(step.high), speed(step.low)}}};
}

Json json_of(const std::vector<Difference>& changed) {
    Json json = Json::array();
    for (const Difference& difference : changed) {
        json.push_back({{"key", difference.key}, {"from", difference.from}, {"to", difference.to}});
    }
    return json;
}

Json json_of(const Alternative& other) {
    Json json{{"changed", json_of(other.changed)},
              {"fits", other.fits},
              {"peak_change_bytes", other.peak_change.value},
              {"peak_change_share", other.peak_share},
              {"host_change_bytes_per_node", other.host_change.value},
              {"speed_change_share", other.speed_change},
              {"device_short_bytes", other.device_short.value},
              {"host_short_bytes_per_node", other.host_short.value}};
    json.update(speed_json(other.candidate));
    return json;
}

Json json_of(const Curve& curve) {
    Json points = Json::array();
    for (const Curve::Point& point : curve.points) {
        Json json{{curve.key, point.value},
                  {"fits", point.fits},
                  {"chosen", point.chosen},
                  {"in_shipped_code", point.shipped}};
        json.update(speed_json(point.candidate));
        points.push_back(std::move(json));
    }
    return {{"key", curve.key}, {"points", std::move(points)}};
}

Json optional_json(const auto& value) { return value ? json_of(*value) : Json(); }

Json json_of(const Recommendation& row) {
    Json turned = Json::array();
    for (const Alternative& turn : row.turned) turned.push_back(json_of(turn));
    return {{"departures_from_published", json_of(differences(row.published, row.candidate.recipe))},
            {"as_published", optional_json(row.as_published)},
            {"next", optional_json(row.next)},
            {"turned", std::move(turned)},
            {"curve", optional_json(row.curve)}};
}

Json json_of(const NearMiss& miss) {
    Json json{{"recipe", json_of(setting_values(miss.candidate.recipe))},
              {"beyond_shipped_code", text_or_null(miss.beyond_shipped_code)},
              {"device_short_bytes", miss.device_short.value},
              {"host_short_bytes_per_node", miss.host_short.value},
              {"fits_up_to_tokens", miss.fits_up_to.value},
              {"fits_with", json_of(miss.turn)},
              {"fits_with_speed_change_share", -miss.turn_costs}};
    json.update(speed_json(miss.candidate));
    return json;
}

}  // namespace

std::string plan_command_line(const Recipe& recipe, const Recipe& plain, const std::vector<std::string>& bench_flags) {
    std::vector<std::string> words{"headroom plan"};
    for (const std::string& flag : bench_flags) words.push_back(printable(flag));
    words.push_back(fmt::format("--method {}", to_string(recipe.method)));
    words.push_back(fmt::format("--context {}", recipe.context.value));
    words.push_back(fmt::format("--ulysses {}", recipe.ulysses));
    words.push_back(fmt::format("--ring {}", recipe.ring));
    words.push_back(fmt::format("--implementation {}", to_string(recipe.implementation)));
    for (const Difference& difference : differences(plain, recipe)) {
        words.push_back(fmt::format("--set {}={}", difference.key, difference.to));
    }
    constexpr std::size_t width = page_width - 4;
    std::string text;
    std::string line = "  " + words.front();
    for (std::size_t i = 1; i < words.size(); ++i) {
        if (line.size() + 1 + words[i].size() > width) {
            text += line + " \\\n";
            line = "    " + words[i];
        } else {
            line += " " + words[i];
        }
    }
    return text + line + "\n";
}

std::string recommend_json(const Recommendations& answer) {
    Json json{{"schema_version", schema_version}};
    json["model"] = json_of(answer.model);
    json["cluster"] = json_of(answer.cluster);
    json["context_tokens"] = answer.context.value;
    json["longest"] = answer.longest;
    json["step_tokens"] = answer.longest ? Json(answer.step.value) : Json();
    json["margin"] = {{"device_share", answer.margin.device}, {"host_share", answer.margin.host}};
    json["tie_share"] = answer.tie;
    json["recommendations"] = Json::array();
    for (std::size_t i = 0; i < answer.list.size(); ++i) {
        const Recommendation& row = answer.list[i];
        json["recommendations"].push_back({{"rank", i + 1},
                                           {"recipe", json_of(setting_values(row.candidate.recipe))},
                                           {"plan", json_of(row.plan)},
                                           {"why", json_of(row)}});
    }
    json["considered"] = answer.considered;
    json["evaluated"] = answer.evaluated;
    json["feasible"] = answer.feasible;
    json["exhaustive"] = answer.exhaustive;
    json["not_searched"] = answer.not_searched.empty() ? Json() : Json(answer.not_searched);
    json["fits_on_nodes"] = answer.fits_on_nodes > 0 ? Json(answer.fits_on_nodes) : Json();
    json["near_misses"] = Json::array();
    for (const NearMiss& miss : answer.near_misses) json["near_misses"].push_back(json_of(miss));
    if (!answer.front.empty()) {
        json["front"] = Json::array();
        for (const FrontPoint& point : answer.front) {
            Json entry{{"context_tokens", point.context.value},
                       {"recipe", json_of(setting_values(point.candidate.recipe))}};
            entry.update(speed_json(point.candidate));
            json["front"].push_back(std::move(entry));
        }
    }
    return document(json);
}

std::string recommend_csv(const Recommendations& answer) {
    std::string text;
    for (std::size_t i = 0; i < answer.list.size(); ++i) {
        const std::string plan = plan_csv(answer.list[i].plan);
        const std::size_t heading = plan.find('\n') + 1;
        if (i == 0) text += "rank," + plan.substr(0, heading);
        text += fmt::format("{},{}", i + 1, plan.substr(heading));
    }
    return text;
}

}  // namespace headroom
