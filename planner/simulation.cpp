// SPDX-License-Identifier: Apache-2.0
#include "planner/simulation.hpp"

#include <algorithm>
#include <map>
#include <string_view>

#include "models/training_step.hpp"
#include "planner/evaluate.hpp"

namespace headroom {
namespace {

/// Cuts the compute stream at the ends of segments and phases.
void fill_spans(Simulation& simulation) {
    double now = 0;
    const auto advance = [&](Phase phase, double to) {
        simulation.spans.back().phases[static_cast<std::size_t>(phase)] += to - now;
        simulation.phases[static_cast<std::size_t>(phase)].value += to - now;
        simulation.spans.back().end = now = to;
    };
    Phase last = Phase::optimizer;
    for (const Slice& slice : simulation.slices) {
        if (slice.stream != Stream::compute || slice.kind == Slice::Kind::on_host) continue;
        std::vector<Span>& spans = simulation.spans;
        if (spans.empty() || spans.back().segment != slice.segment || spans.back().repetition != slice.repetition) {
            spans.push_back({slice.segment, slice.repetition, now, now, {}});
        }
        advance(last = slice.phase, slice.start + slice.duration);
    }
    if (!simulation.spans.empty()) advance(last, simulation.plan.step->time.seconds.value);
}

void fill_blocks(Simulation& simulation) {
    std::vector<BlockTime>& blocks = simulation.blocks;
    for (const Span& span : simulation.spans) {
        const Segment& segment = simulation.schedule.segments[span.segment];
        if (std::string_view(segment.name).find("block") == std::string_view::npos) continue;
        auto block =
            std::find_if(blocks.begin(), blocks.end(), [&](const BlockTime& b) { return b.name == segment.name; });
        if (block == blocks.end()) block = blocks.insert(blocks.end(), {segment.name, segment.repeat, {}, {}, {}});
        const double each = 1.0 / segment.repeat;
        block->forward.value += each * span.phases[static_cast<std::size_t>(Phase::forward)];
        block->recompute.value += each * span.phases[static_cast<std::size_t>(Phase::recompute)];
        block->backward.value += each * span.phases[static_cast<std::size_t>(Phase::backward)];
    }
}

void fill_operations(Simulation& simulation) {
    std::map<std::string_view, OperationTime> by_name;
    for (const Slice& slice : simulation.slices) {
        if (slice.kind == Slice::Kind::held_up) continue;
        OperationTime& operation = by_name[slice.name];
        operation.part = part_of(slice.cost_class);
        operation.count += 1;
        operation.total.value += slice.duration;
    }
    for (auto& [name, operation] : by_name) {
        operation.name = name;
        simulation.operations.push_back(std::move(operation));
    }
    std::stable_sort(simulation.operations.begin(), simulation.operations.end(),
                     [](const OperationTime& a, const OperationTime& b) { return a.total > b.total; });
}

}  // namespace

Simulation simulate(const Transformer& model, const Cluster& cluster, const Recipe& recipe, const TimeBasis& basis) {
    const Calibration& calibration = basis.calibration.value();
    check(calibration, recipe.attention_kernel);

    Simulation simulation;
    simulation.plan = make_plan(model, cluster, recipe, basis);
    build_training_step(make_workload(model, cluster, recipe, simulation.plan.step->role), simulation.schedule);
    Timeline timeline;
    predict_step(simulation.schedule, calibration, topology(recipe, cluster), recipe.attention_kernel, timeline,
                 simulation.slices);
    fill_spans(simulation);
    fill_blocks(simulation);
    fill_operations(simulation);
    simulation.traffic = block_traffic(simulation.schedule, topology(recipe, cluster));
    return simulation;
}

}  // namespace headroom
