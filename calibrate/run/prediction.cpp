// SPDX-License-Identifier: Apache-2.0
#include "calibrate/run/prediction.hpp"

#include <algorithm>

#include "calibrate/blocks_only.hpp"
#include "calibrate/rank_groups.hpp"
#include "models/training_step.hpp"
#include "planner/evaluate.hpp"
#include "planner/outside.hpp"
#include "planner/reserved_replay.hpp"

namespace headroom {
namespace {

void add_op(std::vector<PredictedOp>& ops, const Slice& slice) {
    const auto same =
        std::find_if(ops.begin(), ops.end(), [&](const PredictedOp& op) { return op.name == slice.name; });
    PredictedOp& op = same == ops.end() ? ops.emplace_back(PredictedOp{slice.name, 0, 0}) : *same;
    op.seconds += slice.duration;
    ++op.launches;
}

void read_slices(const std::vector<Slice>& slices, RankPlan& rank) {
    rank.segments.assign(rank.schedule.segments.size(), 0);
    double reached = 0;  // end of the compute stream so far
    for (const Slice& slice : slices) {
        if (slice.kind == Slice::Kind::op) add_op(rank.ops, slice);
        if (slice.kind == Slice::Kind::on_host || slice.stream != Stream::compute) continue;
        const double end = slice.start + slice.duration;
        if (end <= reached) continue;
        rank.segments[slice.segment] += end - reached;
        reached = end;
    }
}

RankPlan plan_rank(const RunCase& one, const Calibration& calibration, const Topology& shape, int rank) {
    RankPlan plan;
    plan.rank = rank;
    plan.work = run_workload(one, rank);
    if (not_described(plan.work).empty()) {
        plan.tensors = build_described_step(plan.work, plan.schedule);
    } else {
        build_training_step(plan.work, plan.schedule);
    }
    if (one.blocks_only) plan.schedule = blocks_only(plan.schedule, plan.tensors.parameters);

    MemoryReplay replay;
    plan.memory = replay.run(plan.schedule);
    ReservedReplay reserved;
    plan.reserved = reserved.run(plan.schedule, one.recipe.expandable_segments).peak_reserved;
    Timeline timeline;
    std::vector<Slice> slices;
    plan.step = predict_step(plan.schedule, calibration, shape, one.recipe.attention_kernel, timeline, slices);
    read_slices(slices, plan);
    return plan;
}

}  // namespace

Workload run_workload(const RunCase& one, int rank) {
    const int place = ring_rank(one.recipe, rank);
    Workload work = make_workload(one.model, one.cluster, one.recipe, place == 0 ? RingRole::first : RingRole::later);
    work.ring_rank = place;
    work.loads_data = false;  // nothing is tokenised here
    return work;
}

const RankPlan& CasePlan::slowest() const {
    return *std::max_element(ranks.begin(), ranks.end(),
                             [](const RankPlan& a, const RankPlan& b) { return a.step.seconds < b.step.seconds; });
}

const RankPlan& CasePlan::largest() const {
    return *std::max_element(ranks.begin(), ranks.end(), [](const RankPlan& a, const RankPlan& b) {
        return a.memory.device_peak < b.memory.device_peak;
    });
}

bool fits(const CasePlan& plan) {
    const Cluster& cluster = plan.one.cluster;
    const MemoryProfile& memory = plan.largest().memory;
    return memory.device_peak + plan.outside <= cluster.device_memory &&
           memory.pinned_peak * cluster.gpus_per_node <= usable_host_memory(cluster);
}

CasePlan predict_case(const RunCase& one, const Calibration& calibration) {
    check(calibration, one.recipe.attention_kernel);
    CasePlan plan;
    plan.one = one;
    plan.topology = topology(one.recipe, one.cluster);
    plan.calibration = calibration;
    plan.outside = outside_bytes(one.cluster, one.recipe);
    for (int rank = 0; rank < one.cluster.gpus(); ++rank) {
        plan.ranks.push_back(plan_rank(one, calibration, plan.topology, rank));
    }
    return plan;
}

Part part_of_event(const Event& event, Phase phase, const CasePlan& plan) {
    return part_of(cost_of(event, phase, plan.calibration, plan.topology, plan.one.recipe.attention_kernel).cost_class);
}

}  // namespace headroom
