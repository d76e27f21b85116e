// SPDX-License-Identifier: Apache-2.0
// Does one configuration fit: device bytes on the worst rank, host bytes per node, and what they consist of.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "models/cluster.hpp"
#include "models/recipe.hpp"
#include "models/schedule.hpp"
#include "models/transformer.hpp"
#include "planner/step.hpp"

namespace headroom {

/// Bytes alive at the peak under one name.
struct MemoryPart {
    Group group;
    std::string name;
    Bytes bytes;
};

/// A term outside the allocator: CUDA context, one communicator, library workspaces.
struct OutsideTerm {
    std::string name;
    Bytes bytes;
};

struct DeviceMemory {
    Bytes capacity;           ///< what the driver reports
    Bytes outside_allocator;  ///< sum of `outside`
    std::vector<OutsideTerm> outside;
    Bytes usable;                   ///< capacity - outside_allocator: what the allocator can have
    Bytes peak;                     ///< allocated, worst rank
    Bytes unreturnable;             ///< cached bytes that cannot be given back at the peak (partly used blocks)
    Bytes peak_reserved;            ///< reserved by a run with room to spare, worst rank
    Bytes rank0_peak;               ///< allocated, ring rank 0: what a training log shows
    int peak_rank = 0;              ///< context-parallel rank with the largest peak
    std::string phase;              ///< e.g. "backward, block 1 of 32"
    MemoryPart last;                ///< the tensor whose allocation makes the peak
    std::string part;               ///< what computes there: "attention", "MLP", "loss"; else the tensor's group
    std::string segment;            ///< of the schedule, in which that is; the same whatever the number of blocks
    std::vector<MemoryPart> parts;  ///< by group, then largest first; sums to `peak`
    bool fits = false;              ///< peak + unreturnable <= usable
};

/// Host bytes of a node under one name.
struct HostPart {
    std::string name;
    Place place;  ///< pinned or pageable
    Bytes bytes;
};

struct HostMemory {
    Bytes capacity_per_node;
    Bytes usable_per_node;
    Bytes pinned_per_node;  ///< rounded as PyTorch's pinned allocator does
    Bytes pageable_per_node;
    Bytes peak_per_node;
    std::vector<HostPart> parts;  ///< largest first, each at its own peak
    bool fits = false;
};

struct Plan {
    Transformer model;
    Cluster cluster;
    Recipe recipe;
    DeviceMemory device;
    HostMemory host;
    bool fits = false;
    std::string verdict;                 ///< one sentence
    std::string beyond_shipped_code;     ///< why that does not run it; empty when it does. The verdict is of memory
    std::optional<StepPrediction> step;  ///< absent without rates for the kernel; `warnings` then says so
    std::vector<std::string> warnings;
};

/// Plans a recipe that `check` accepts; with a step time when there are constants for it.
Plan make_plan(const Transformer& model, const Cluster& cluster, const Recipe& recipe, const TimeBasis& basis = {});
/// The same with storage that many plans share.
Plan make_plan(const Transformer& model, const Cluster& cluster, const Recipe& recipe, const TimeBasis& basis,
               Evaluator& evaluator);

/// Gives a plan its step time, or the reason why it has none.
void add_step(Plan& plan, const TimeBasis& basis, Evaluator& evaluator);

/// Only the two questions of a search, without names, parts and reserved bytes: much faster than make_plan.
struct Verdict {
    bool device_fits = false;
    bool host_fits = false;
    Bytes device_peak;
    Bytes host_peak_per_node;
    bool fits() const { return device_fits && host_fits; }
};

}  // namespace headroom
