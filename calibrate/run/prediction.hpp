// SPDX-License-Identifier: Apache-2.0
// What one case should take, rank by rank, from the very schedules that are executed.
#pragma once

#include <string>
#include <vector>

#include "calibrate/run/cases.hpp"
#include "models/schedule.hpp"
#include "models/training_step.hpp"
#include "models/workload.hpp"
#include "planner/memory_replay.hpp"
#include "simulator/step_time.hpp"
#include "simulator/topology.hpp"

namespace headroom {

/// Time of all launches under one name, each alone on its stream.
struct PredictedOp {
    std::string name;
    double seconds = 0;
    std::int64_t launches = 0;
};

struct RankPlan {
    int rank = 0;
    Workload work;
    Schedule schedule;
    StepTensors tensors;  ///< of the schedule
    MemoryProfile memory;
    Bytes reserved;  ///< by a caching allocator
    StepTime step;
    std::vector<PredictedOp> ops;
    std::vector<double> segments;  ///< seconds the compute stream spends in each segment of the schedule
};

struct CasePlan {
    RunCase one;
    Topology topology;
    Calibration calibration;
    Bytes outside;  ///< context and communicators
    std::vector<RankPlan> ranks;

    const RankPlan& slowest() const;
    const RankPlan& largest() const;
};

/// Throws Error when the calibration has no rates for cuDNN's kernel. Schedules are described, as far as the case can
/// be run.
CasePlan predict_case(const RunCase& one, const Calibration& calibration);
/// Predicted bytes against the GPU, and pinned ones against the node, as `headroom plan` compares them.
bool fits(const CasePlan& plan);
/// What rank `rank` of a case does.
Workload run_workload(const RunCase& one, int rank);
/// The part of a step that an operation counts to.
Part part_of_event(const Event& event, Phase phase, const CasePlan& plan);

}  // namespace headroom
