// SPDX-License-Identifier: Apache-2.0
// The GPUs that execute a case together, and what they measured. Two exist: CUDA (cuda/run_fleet.cpp) and the fake one
// of the tests.
#pragma once

#include <atomic>
#include <vector>

#include "calibrate/device.hpp"
#include "calibrate/run/prediction.hpp"
#include "calibrate/runner.hpp"

namespace headroom {

/// All launches under one name in one phase of a step.
struct MeasuredOp {
    Event event{};  ///< one of them
    Phase phase{};
    std::int64_t launches = 0;
    double seconds = 0;        ///< on its stream
    double exposed = 0;        ///< that the compute stream waited for it
    std::vector<double> each;  ///< of a collective, launch by launch: ranks wait in it for the last of them
};

/// Memory that cuDNN asks for beside the operands of one kernel, and what the schedule holds for it meanwhile.
struct WorkspaceUse {
    Attention shape{};
    Bytes wanted, scheduled;
};

struct RankMeasurement {
    int rank = 0;
    std::vector<double> seconds;  ///< of each timed step, from the common start to this rank's end
    RunMemory requested;          ///< what the schedule asked for
    Bytes pool_peak;              ///< most bytes the driver's pool had handed out at once
    Bytes pool_reserved;          ///< most bytes the pool held
    Bytes scratch;                ///< workspaces of kernels, outside of the pool
    Bytes outside;                ///< context, libraries and communicators: used less pool less scratch
    Bytes pinned;                 ///< page-locked host memory held
    std::vector<MeasuredOp> ops;
    std::vector<double> segments;  ///< seconds of the compute stream in each segment of the schedule
    double instrumented_seconds = 0;
    std::vector<WorkspaceUse> workspaces;
};

struct CaseMeasurement {
    std::vector<RankMeasurement> ranks;
    std::vector<double> seconds;  ///< of each timed step, until the last rank's end
    std::vector<double> losses;   ///< of every step, warm ones and all: mean over tokens and ranks; none without a loss
    int warm_steps = 0;
    double warm_seconds = 0;
    double preparation_seconds = 0;       ///< plans, communicators, first allocations
    std::vector<GpuState> before, after;  ///< of each GPU
};

struct RunProtocol {
    int steps = 3;
    double warm_seconds = 2;
    const std::atomic<bool>* interrupted = nullptr;
};

class RunFleet {
 public:
    virtual ~RunFleet() = default;
    virtual Json provenance() = 0;
    virtual int gpus() = 0;
    /// Throws Error: does_not_fit for memory, failure otherwise, naming the rank; interrupted after Ctrl-C. The fleet
    /// can be used again afterwards unless usable() says no.
    virtual CaseMeasurement run(const CasePlan& plan, const RunProtocol& protocol) = 0;
    virtual bool usable() { return true; }
};

}  // namespace headroom
