// SPDX-License-Identifier: Apache-2.0
// One training step played op by op: where the time goes, and the timeline itself.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "planner/plan.hpp"
#include "planner/traffic.hpp"
#include "reports/trace.hpp"

namespace headroom {

/// One repetition of a segment (a block, the loss, ...) on the compute stream. Spans follow each other without gaps:
/// the time a stream stood still belongs to what it waited to run.
struct Span {
    std::uint32_t segment = 0, repetition = 0;
    double begin = 0, end = 0;                 ///< seconds from the start of the step
    std::array<double, phase_count> phases{};  ///< seconds by Phase; sums to end - begin
};

/// A block, forwards and backwards. The middle ones are alike but for their first few.
struct BlockTime {
    std::string name;  ///< "first block", "middle blocks", "last block"
    std::int64_t count = 1;
    Seconds forward, recompute, backward;  ///< of one block, the mean of `count`
};

/// All runs of one name.
struct OperationTime {
    std::string name;
    Part part{};
    std::int64_t count = 0;
    Seconds total;  ///< busy, over all streams
};

struct Simulation {
    Plan plan;  ///< with a step; of the rank that decides it
    Schedule schedule;
    std::vector<Slice> slices;
    std::vector<Span> spans;

    std::array<Seconds, phase_count> phases{};  ///< sums to the step
    std::vector<BlockTime> blocks;
    std::vector<OperationTime> operations;  ///< longest first
    std::vector<Traffic> traffic;           ///< of a middle block
};

/// The basis must have a calibration. Throws Error where a plan would only warn that there is no step time.
Simulation simulate(const Transformer& model, const Cluster& cluster, const Recipe& recipe, const TimeBasis& basis);

/// The timeline with a track for each stream and counters for memory. Of the blocks only the first `blocks` of forward
/// and of backward are shown; the others shrink to a mark, and time after them is drawn earlier.
Trace trace_of(const Simulation& simulation, std::int64_t blocks);

}  // namespace headroom
