// SPDX-License-Identifier: Apache-2.0
// The whole training step of one rank: states, gathers, blocks, loss, backward, optimizer.
#pragma once

#include <string>
#include <vector>

#include "models/schedule.hpp"
#include "models/workload.hpp"

namespace headroom {

/// Writes the step of `work` into `schedule`, whose storage is reused. The middle blocks are one repeated segment.
void build_training_step(const Workload& work, Schedule& schedule);

/// Tensors of a described step that the surroundings fill after the set-up, and those they may read.
struct StepTensors {
    /// fp32, the rank's part of every block's weights (models/weights.hpp), then of the root's. Of N ranks, rank r
    /// holds the r-th N-th of each.
    TensorId parameters;
    TensorId moments;       ///< fp32: first moments in the order of the parameters, then second ones; zeros at first
    TensorId rotary_table;  ///< fp32 [rows][head_dim / 2][2], cosine and sine
    TensorId tokens;        ///< 64-bit [rows] tokens, then [rows] labels
    /// fp32, the rank's part of each block's gradients, then of the root's; alive from the segment that makes them
    /// (the last one is "embedding backward") to the optimizer.
    std::vector<TensorId> gradients;
};

/// The same step with every block written out and every launch saying what it computes, so that it can be run: the
/// lean form of ring, ulysses, usp, upipe, fpdt under FSDP over all ranks. Bytes and work are those of
/// build_training_step. Throws Error for what has no description.
StepTensors build_described_step(const Workload& work, Schedule& schedule);
/// What has no description in `work`; empty when all has.
std::string not_described(const Workload& work);

}  // namespace headroom
