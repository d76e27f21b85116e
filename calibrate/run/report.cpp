// SPDX-License-Identifier: Apache-2.0
#include "calibrate/run/report.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "calibrate/statistics.hpp"
#include "configs/recipe_text.hpp"

namespace headroom {
namespace {

Json recipe_json(const Recipe& recipe) {
    Json json = Json::object();
    for (const RecipeLine& line : describe(recipe)) json[line.key] = line.value;
    return json;
}

Json case_json(const RunCase& one) {
    Json json{{"record", "run"}, {"name", one.name}, {"model", one.model.name}, {"layers", one.model.layers}};
    json["blocks_only"] = one.blocks_only;
    json["cluster"] = one.cluster.name;
    json["gpus"] = one.cluster.gpus();
    if (one.invalid.empty()) json["recipe"] = recipe_json(one.recipe);
    return json;
}

double relative(double measured, double predicted) { return predicted == 0 ? 0 : measured / predicted - 1; }
double relative(Bytes measured, Bytes predicted) {
    return relative(static_cast<double>(measured.value), static_cast<double>(predicted.value));
}

std::string place_of(const RankPlan& rank, std::uint32_t segment, Phase phase) {
    return fmt::format("{}, {}", rank.schedule.segments[segment].name, to_string(phase));
}

const RankMeasurement& largest(const CaseMeasurement& measured) {
    return *std::max_element(
        measured.ranks.begin(), measured.ranks.end(),
        [](const RankMeasurement& a, const RankMeasurement& b) { return a.pool_peak < b.pool_peak; });
}

double median_seconds(const RankMeasurement& rank) { return summarise(rank.seconds).median; }

const RankMeasurement& slowest(const CaseMeasurement& measured) {
    return *std::max_element(
        measured.ranks.begin(), measured.ranks.end(),
        [](const RankMeasurement& a, const RankMeasurement& b) { return median_seconds(a) < median_seconds(b); });
}

double computing_seconds(const RankMeasurement& rank) {
    double sum = 0;
    for (const MeasuredOp& op : rank.ops) {
        const EventKind kind = op.event.kind;
        const bool computes =
            kind == EventKind::gemm || kind == EventKind::attention || kind == EventKind::memory_bound;
        sum += computes ? op.seconds : 0;
    }
    return sum;
}

/// Steps end together on all ranks, for they wait in each other's collectives: whom the others wait for is the one that
/// computes longest.
const RankMeasurement& busiest(const CaseMeasurement& measured) {
    return *std::max_element(
        measured.ranks.begin(), measured.ranks.end(),
        [](const RankMeasurement& a, const RankMeasurement& b) { return computing_seconds(a) < computing_seconds(b); });
}

Json memory_json(const CasePlan& plan, const CaseMeasurement& measured) {
    const RankMeasurement& worst = largest(measured);
    const RankPlan& predicted = plan.ranks[static_cast<std::size_t>(worst.rank)];
    Json json{{"predicted_peak_bytes", plan.largest().memory.device_peak.value},
              {"measured_peak_bytes", worst.pool_peak.value},
              {"error", relative(worst.pool_peak, plan.largest().memory.device_peak)},
              {"requested_peak_bytes", worst.requested.device_peak.value},
              {"worst_rank", worst.rank},
              {"predicted_at", place_of(predicted, predicted.memory.at.segment, predicted.memory.at.phase)},
              {"measured_at", place_of(predicted, worst.requested.at.segment, worst.requested.at.phase)},
              {"predicted_reserved_bytes", predicted.reserved.value},
              {"pool_reserved_bytes", worst.pool_reserved.value},
              {"predicted_outside_bytes", plan.outside.value},
              {"outside_bytes", worst.outside.value},
              {"scratch_bytes", worst.scratch.value},
              {"device_used_bytes", (worst.pool_reserved + worst.outside).value},
              {"predicted_pinned_bytes", predicted.memory.pinned_peak.value},
              {"pinned_bytes", worst.pinned.value}};
    for (const RankMeasurement& rank : measured.ranks) json["peak_bytes_by_rank"].push_back(rank.pool_peak.value);
    return json;
}

Json time_json(const CasePlan& plan, const CaseMeasurement& measured) {
    const Summary summary = summarise(measured.seconds);
    const RankPlan& predicted = plan.slowest();
    Json json{{"predicted_seconds", predicted.step.seconds.value},
              {"predicted_seconds_range", {predicted.step.low.value, predicted.step.high.value}},
              {"measured_seconds", summary.median},
              {"error", relative(summary.median, predicted.step.seconds.value)},
              {"mad_seconds", summary.mad},
              {"samples", measured.seconds},
              {"worst_rank", busiest(measured).rank},
              {"predicted_worst_rank", predicted.rank},
              {"warm_steps", measured.warm_steps},
              {"warm_seconds", measured.warm_seconds},
              {"preparation_seconds", measured.preparation_seconds}};
    for (const RankMeasurement& rank : measured.ranks) {
        json["seconds_by_rank"].push_back(median_seconds(rank));
        json["computing_seconds_by_rank"].push_back(computing_seconds(rank));
        json["predicted_seconds_by_rank"].push_back(plan.ranks[static_cast<std::size_t>(rank.rank)].step.seconds.value);
    }
    json["instrumented_seconds"] = slowest(measured).instrumented_seconds;
    return json;
}

/// What one rank's launches of a name take, added over phases.
struct OpRow {
    std::string name;
    Part part{};
    double predicted = 0, measured = 0, exposed = 0;
    double fastest = 0;  ///< of a collective: each launch on the rank that came to it last, so without the wait for it
    std::int64_t launches = 0;
    std::vector<double> by_rank;
};

/// The same launches on another rank.
const MeasuredOp* same_op(const RankMeasurement& rank, const MeasuredOp& op) {
    const std::string name = op.event.name;
    for (const MeasuredOp& other : rank.ops) {
        if (other.phase == op.phase && other.event.kind == op.event.kind && other.event.name == name) return &other;
    }
    return nullptr;
}

double fastest_of(const CaseMeasurement& measured, const MeasuredOp& op) {
    if (op.each.empty()) return op.seconds;
    std::vector<double> least = op.each;
    for (const RankMeasurement& rank : measured.ranks) {
        const MeasuredOp* other = same_op(rank, op);
        if (other == nullptr || other->each.size() != least.size()) continue;
        for (std::size_t i = 0; i < least.size(); ++i) least[i] = std::min(least[i], other->each[i]);
    }
    double sum = 0;
    for (const double seconds : least) sum += seconds;
    return sum;
}

std::vector<OpRow> op_rows(const CasePlan& plan, const CaseMeasurement& measured, const RankMeasurement& rank) {
    const RankPlan& predicted = plan.ranks[static_cast<std::size_t>(rank.rank)];
    std::vector<OpRow> rows;
    for (const MeasuredOp& op : rank.ops) {
        const std::string name = op.event.name;
        auto row = std::find_if(rows.begin(), rows.end(), [&](const OpRow& one) { return one.name == name; });
        if (row == rows.end()) {
            row = rows.insert(rows.end(), {name, part_of_event(op.event, op.phase, plan), 0, 0, 0, 0, 0, {}});
            row->by_rank.assign(measured.ranks.size(), 0);
            for (const PredictedOp& wanted : predicted.ops) row->predicted += wanted.name == name ? wanted.seconds : 0;
        }
        row->measured += op.seconds;
        row->exposed += op.exposed;
        row->fastest += fastest_of(measured, op);
        row->launches += op.launches;
        for (std::size_t i = 0; i < measured.ranks.size(); ++i) {
            const MeasuredOp* there = same_op(measured.ranks[i], op);
            row->by_rank[i] += there == nullptr ? 0 : there->seconds;
        }
    }
    std::stable_sort(rows.begin(), rows.end(), [](const OpRow& a, const OpRow& b) { return a.measured > b.measured; });
    return rows;
}

Json ops_json(const std::vector<OpRow>& rows) {
    Json json = Json::array();
    for (const OpRow& row : rows) {
        json.push_back({{"name", row.name},
                        {"part", to_string(row.part)},
                        {"launches", row.launches},
                        {"predicted_seconds", row.predicted},
                        {"measured_seconds", row.measured},
                        {"error", relative(row.measured, row.predicted)},
                        {"without_waiting_seconds", row.fastest},
                        {"exposed_seconds", row.exposed},
                        {"seconds_by_rank", row.by_rank}});
    }
    return json;
}

/// By part: busy time of all streams, and of the communication and copies what the compute stream waited for.
Json parts_json(const CasePlan& plan, const RankMeasurement& rank, const std::vector<OpRow>& rows) {
    const RankPlan& predicted = plan.ranks[static_cast<std::size_t>(rank.rank)];
    std::array<double, part_count> busy{}, fastest{}, exposed{};
    for (const OpRow& row : rows) {
        busy[static_cast<std::size_t>(row.part)] += row.measured;
        fastest[static_cast<std::size_t>(row.part)] += row.fastest;
        exposed[static_cast<std::size_t>(row.part)] += row.exposed;
    }
    Json json = Json::array();
    for (std::size_t i = 0; i < part_count; ++i) {
        const PartTime& expected = predicted.step.parts[i];
        if (expected.busy.value == 0 && busy[i] == 0) continue;
        if (static_cast<Part>(i) == Part::host) continue;
        json.push_back({{"part", to_string(static_cast<Part>(i))},
                        {"predicted_seconds", expected.busy.value},
                        {"measured_seconds", busy[i]},
                        {"error", relative(busy[i], expected.busy.value)},
                        {"without_waiting_seconds", fastest[i]},
                        {"predicted_exposed_seconds", expected.exposed.value},
                        {"waited_for_seconds", exposed[i]}});
    }
    return json;
}

Json segments_json(const RankPlan& predicted, const RankMeasurement& rank) {
    Json json = Json::array();
    for (std::size_t i = 0; i < rank.segments.size(); ++i) {
        if (predicted.schedule.segments[i].phase == Phase::setup) continue;
        json.push_back({{"segment", predicted.schedule.segments[i].name},
                        {"phase", to_string(predicted.schedule.segments[i].phase)},
                        {"predicted_seconds", predicted.segments[i]},
                        {"measured_seconds", rank.segments[i]},
                        {"error", relative(rank.segments[i], predicted.segments[i])},
                        {"peak_bytes", rank.requested.segments[i].value}});
    }
    return json;
}

Json workspaces_json(const RankMeasurement& rank) {
    Json json = Json::array();
    for (const WorkspaceUse& use : rank.workspaces) {
        json.push_back({{"query_tokens", use.shape.query_len},
                        {"key_tokens", use.shape.key_len},
                        {"heads", use.shape.heads},
                        {"kv_heads", use.shape.kv_heads},
                        {"causal", use.shape.causal},
                        {"backward", use.shape.backward},
                        {"wanted_bytes", use.wanted.value},
                        {"scheduled_bytes", use.scheduled.value}});
    }
    return json;
}

Json states_json(const std::vector<GpuState>& states) {
    Json json = Json::array();
    for (const GpuState& state : states) {
        json.push_back({{"sm_clock_mhz", state.sm_clock_mhz},
                        {"memory_clock_mhz", state.memory_clock_mhz},
                        {"temperature_celsius", state.temperature_celsius},
                        {"power_watts", state.power_watts},
                        {"throttle", state.throttle}});
    }
    return json;
}

/// Six digits are more than any clock gives.
void round_numbers(Json& json) {
    if (json.is_number_float()) {
        json = std::stod(fmt::format("{:.6g}", json.get<double>()));
    } else if (json.is_structured()) {
        for (Json& item : json) round_numbers(item);
    }
}

/// A step of 12,345 s keeps its column.
std::string seconds_text(double seconds) { return fmt::format("{:.{}f}", seconds, seconds < 1000 ? 4 : 1); }

}  // namespace

Json prediction_record(const CasePlan& plan) {
    Json json = case_json(plan.one);
    const RankPlan& worst = plan.largest();
    json["status"] = fits(plan) ? "predicted" : "does_not_fit";
    const RankPlan& slow = plan.slowest();
    json["memory"] = {{"predicted_peak_bytes", worst.memory.device_peak.value},
                      {"predicted_at", place_of(worst, worst.memory.at.segment, worst.memory.at.phase)},
                      {"worst_rank", worst.rank},
                      {"predicted_reserved_bytes", worst.reserved.value},
                      {"predicted_outside_bytes", plan.outside.value},
                      {"predicted_pinned_bytes", worst.memory.pinned_peak.value}};
    json["time"] = {{"predicted_seconds", slow.step.seconds.value},
                    {"predicted_seconds_range", {slow.step.low.value, slow.step.high.value}},
                    {"predicted_worst_rank", slow.rank}};
    json["parts"] = Json::array();
    for (std::size_t i = 0; i < part_count; ++i) {
        const PartTime& part = slow.step.parts[i];
        if (part.busy.value == 0 && part.exposed.value == 0) continue;
        json["parts"].push_back({{"part", to_string(static_cast<Part>(i))},
                                 {"predicted_seconds", part.busy.value},
                                 {"predicted_exposed_seconds", part.exposed.value}});
    }
    json["calibration"] = plan.calibration.name;
    return json;
}

Json run_record(const CasePlan& plan, const CaseMeasurement& measured) {
    Json json = case_json(plan.one);
    json["status"] = "ok";
    json["calibration"] = plan.calibration.name;
    json["memory"] = memory_json(plan, measured);
    json["time"] = time_json(plan, measured);
    const RankMeasurement& rank = busiest(measured);
    const std::vector<OpRow> rows = op_rows(plan, measured, rank);
    json["parts_of_rank"] = rank.rank;
    json["parts"] = parts_json(plan, rank, rows);
    json["segments"] = segments_json(plan.ranks[static_cast<std::size_t>(rank.rank)], rank);
    json["ops"] = ops_json(rows);
    json["workspaces"] = workspaces_json(rank);
    if (!measured.losses.empty()) json["loss"] = measured.losses;
    json["before"] = states_json(measured.before);
    json["after"] = states_json(measured.after);
    round_numbers(json);
    return json;
}

Json failed_record(const RunCase& one, const std::string& status, const std::string& reason) {
    Json json = case_json(one);
    json["status"] = status;
    json["reason"] = reason;
    return json;
}

std::string table_heading(std::size_t width) {
    return fmt::format("{:<{}} {:^23} {:^25}\n", "", width, "peak, GiB", "step, seconds") +
           fmt::format("{:<{}} {:>7} {:>7} {:>7} {:>8} {:>8} {:>7}\n", "case", width, "planned", "run", "error",
                       "planned", "run", "error");
}

std::string table_line(const Json& record, std::size_t width) {
    const std::string name = record["name"];
    const std::string status = record["status"];
    if (status != "ok" && status != "predicted" && status != "does_not_fit") {
        return fmt::format("{:<{}} {}: {}\n", name, width, status, record["reason"].get<std::string>());
    }
    const auto gib = [&](const char* key) { return in_gib({record["memory"][key].get<std::int64_t>()}); };
    const Json& time = record["time"];
    const double peak = gib("predicted_peak_bytes");
    const std::string seconds = seconds_text(time["predicted_seconds"].get<double>());
    const std::string begin = fmt::format("{:<{}} {:>7.3f}", name, width, peak);
    if (status != "ok") {
        const char* verdict = status == "predicted" ? "" : "  does not fit";
        return fmt::format("{}{:<16} {:>8}\n", begin, verdict, seconds);
    }
    return fmt::format("{} {:>7.3f} {:>+6.2f}% {:>8} {:>8} {:>+6.2f}%\n", begin, gib("measured_peak_bytes"),
                       100 * record["memory"]["error"].get<double>(), seconds,
                       seconds_text(time["measured_seconds"].get<double>()), 100 * time["error"].get<double>());
}

std::string parts_text(const Json& record) {
    if (record["status"] != "ok") return "";
    std::string text;
    for (const Json& part : record["parts"]) {
        text += fmt::format("  {:<16} {:>9.4f} s planned {:>9.4f} run {:>+7.1f}%", part["part"].get<std::string>(),
                            part["predicted_seconds"].get<double>(), part["measured_seconds"].get<double>(),
                            100 * part["error"].get<double>());
        if (part["predicted_exposed_seconds"].get<double>() > 0 && part["waited_for_seconds"].get<double>() > 0) {
            text += fmt::format(", waited for {:.4f} ({:.4f})", part["waited_for_seconds"].get<double>(),
                                part["predicted_exposed_seconds"].get<double>());
        }
        text += "\n";
    }
    if (record.contains("loss")) {
        const Json& loss = record["loss"];
        text += fmt::format("  loss {:.2f} to {:.2f} over {} steps\n", loss.front().get<double>(),
                            loss.back().get<double>(), loss.size());
    }
    return text;
}

}  // namespace headroom
