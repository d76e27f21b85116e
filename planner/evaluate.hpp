// SPDX-License-Identifier: Apache-2.0
// The fast core of planning: one recipe to its peaks, without names or allocations. Searches and sweeps call this.
#pragma once

#include <span>

#include "models/workload.hpp"
#include "planner/memory_replay.hpp"
#include "planner/plan.hpp"
#include "planner/reserved_replay.hpp"
#include "simulator/timeline.hpp"

namespace headroom {

/// Both questions of a search.
struct Evaluation {
    Verdict memory;
    StepTime step;  ///< of the slower ring role
};

/// Storage that evaluations share; one for each thread.
struct Evaluator {
    Schedule schedule;
    MemoryReplay replay;
    ReservedReplay reserved;
    Timeline timeline;

    /// Device peak of the worst ring role and host peak, by the fast replay. Ignores what sticks in the allocator.
    Verdict verdict(const Transformer& model, const Cluster& cluster, const Recipe& recipe);
    /// The same and the step time, from one schedule for each role.
    Evaluation evaluate(const Transformer& model, const Cluster& cluster, const Recipe& recipe,
                        const Calibration& calibration);

 private:
    Evaluation read(const Transformer& model, const Cluster& cluster, const Recipe& recipe,
                    const Calibration* calibration);
};

/// Host bytes of a node that training may use.
Bytes usable_host_memory(const Cluster& cluster);
/// Ring roles that differ in memory: one without a ring, two with.
std::span<const RingRole> ring_roles(const Recipe& recipe);

}  // namespace headroom
