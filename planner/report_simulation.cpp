// SPDX-License-Identifier: Apache-2.0
// A simulated step as text, JSON and CSV.
#include <fmt/core.h>

#include <algorithm>

#include "planner/json.hpp"
#include "planner/report.hpp"
#include "planner/simulation.hpp"
#include "reports/csv.hpp"
#include "reports/numbers.hpp"
#include "reports/table.hpp"

namespace headroom {

namespace {

constexpr std::size_t operations_in_text = 10;

std::string percent(Seconds part, Seconds whole) { return fmt::format("{:.1f}%", 100 * part.value / whole.value); }
std::string seconds(Seconds time) { return time.value > 0 ? fmt::format("{:.4f}", time.value) : "-"; }

std::string phases_table(const Simulation& simulation, Seconds step) {
    Table table({{"phase"}, {"s", Align::right}, {"share", Align::right}});
    for (std::size_t i = 0; i < phase_count; ++i) {
        const Seconds time = simulation.phases[i];
        if (time.value <= 0) continue;
        table.row({std::string(to_string(static_cast<Phase>(i))), seconds(time), percent(time, step)});
    }
    return table.text(page_width, 2);
}

std::string blocks_table(const Simulation& simulation) {
    Table table({{"of one block, s"},
                 {"blocks", Align::right},
                 {"forward", Align::right},
                 {"recompute", Align::right},
                 {"backward", Align::right},
                 {"together", Align::right}});
    for (const BlockTime& block : simulation.blocks) {
        table.row({block.name, with_separators(block.count), seconds(block.forward), seconds(block.recompute),
                   seconds(block.backward), seconds(block.forward + block.recompute + block.backward)});
    }
    return table.text(page_width, 2);
}

std::string traffic_table(const Simulation& simulation) {
    Table table({{"of one block, GiB"},
                 {"forward", Align::right},
                 {"recompute", Align::right},
                 {"backward", Align::right},
                 {"together", Align::right}});
    const auto cell = [](Bytes bytes) { return bytes.value > 0 ? gib(bytes) : std::string("-"); };
    for (const Traffic& row : simulation.traffic) {
        const auto of = [&](Phase phase) { return cell(row.sent[static_cast<std::size_t>(phase)]); };
        table.row({row.name, of(Phase::forward), of(Phase::recompute), of(Phase::backward), cell(row.total())});
    }
    return table.text(page_width, 2);
}

std::string operations_table(const Simulation& simulation, Seconds step) {
    Table table({{"operation", Align::left, true},
                 {"part"},
                 {"times", Align::right},
                 {"s", Align::right},
                 {"each", Align::right},
                 {"of step", Align::right}});
    const std::size_t rows = std::min(operations_in_text, simulation.operations.size());
    for (std::size_t i = 0; i < rows; ++i) {
        const OperationTime& operation = simulation.operations[i];
        table.row({operation.name, std::string(spoken(operation.part)), with_separators(operation.count),
                   seconds(operation.total), duration(operation.total / static_cast<double>(operation.count)),
                   percent(operation.total, step)});
    }
    return table.text(page_width, 2);
}

}  // namespace

std::string simulation_text(const Simulation& simulation, const Style& style) {
    const Plan& plan = simulation.plan;
    const Seconds step = plan.step->time.seconds;
    std::string text = step_headline(plan);
    if (!plan.fits) text += paragraph(style.bad("it " + plan.verdict));
    text += "\n" + bench_line(plan.model, plan.cluster) + recipe_lines(plan.recipe, plan.cluster);
    text += "\n" + step_section(plan, style);
    text += "\n" + style.strong("By phase") + ", with what the compute stream waits for\n";
    text += phases_table(simulation, step);
    text += "\n" + style.strong("By block") + "\n" + blocks_table(simulation);
    if (!simulation.traffic.empty()) {
        text +=
            "\n" + style.strong("Sent by one GPU") + "; what stays on it is not counted\n" + traffic_table(simulation);
    }
    text += "\n" + style.strong("Longest operations") + ", busy time over all streams\n";
    text += operations_table(simulation, step);
    if (!plan.warnings.empty()) text += "\n";
    for (const std::string& warning : plan.warnings) text += paragraph(printable(warning), "warning: ");
    return text;
}

std::string simulation_json(const Simulation& simulation) {
    Json phases = Json::array();
    for (std::size_t i = 0; i < phase_count; ++i) {
        if (simulation.phases[i].value <= 0) continue;
        phases.push_back({{"name", to_string(static_cast<Phase>(i))}, {"seconds", simulation.phases[i].value}});
    }
    Json blocks = Json::array();
    for (const BlockTime& block : simulation.blocks) {
        blocks.push_back({{"name", block.name},
                          {"count", block.count},
                          {"forward_seconds", block.forward.value},
                          {"recompute_seconds", block.recompute.value},
                          {"backward_seconds", block.backward.value}});
    }
    Json operations = Json::array();
    for (const OperationTime& operation : simulation.operations) {
        operations.push_back({{"name", operation.name},
                              {"part", to_string(operation.part)},
                              {"count", operation.count},
                              {"seconds", operation.total.value}});
    }
    Json traffic = Json::array();
    for (const Traffic& row : simulation.traffic) {
        const auto of = [&](Phase phase) { return row.sent[static_cast<std::size_t>(phase)].value; };
        traffic.push_back({{"name", row.name},
                           {"forward_bytes", of(Phase::forward)},
                           {"recompute_bytes", of(Phase::recompute)},
                           {"backward_bytes", of(Phase::backward)}});
    }
    Json json{{"schema_version", schema_version}};
    json.update(json_of(simulation.plan));
    json["timeline"] = {{"phases", std::move(phases)},
                        {"blocks", std::move(blocks)},
                        {"sent_by_one_gpu_in_a_block", std::move(traffic)},
                        {"operations", std::move(operations)}};
    return document(json);
}

std::string simulation_csv(const Simulation& simulation) {
    std::string text = csv_line({"operation", "part", "count", "seconds", "seconds_each", "share_of_step"});
    const double step = simulation.plan.step->time.seconds.value;
    for (const OperationTime& operation : simulation.operations) {
        const double total = operation.total.value;
        text += csv_line({operation.name, std::string(to_string(operation.part)), std::to_string(operation.count),
                          fmt::format("{}", total), fmt::format("{}", total / static_cast<double>(operation.count)),
                          fmt::format("{}", total / step)});
    }
    return text;
}

}  // namespace headroom
