// SPDX-License-Identifier: Apache-2.0
// Attention of described schedules on one stream: a plan for each shape.
#pragma once

#include <array>
#include <map>
#include <memory>

#include "calibrate/arithmetic.hpp"
#include "calibrate/attention_limits.hpp"
#include "calibrate/cuda/attention.hpp"
#include "calibrate/cuda/memory.hpp"

namespace headroom {

class AttentionCalls {
 public:
    explicit AttentionCalls(cudaStream_t stream) : stream_(stream), cudnn_(stream) {}

    /// Makes the plans, and room where the schedule has too little of it. Throws Error for an engine of half the rate.
    void prepare(const AttentionCall& call, const Attention& shape);
    void run(const AttentionCall& call, const Attention& shape, const Addresses& at);
    /// What cuDNN takes beside the operands of one call: its own workspace, dQ accumulator and delta.
    std::int64_t needed_bytes(const Attention& shape);

 private:
    using Key = std::array<std::int64_t, 7>;

    AttentionPlan& plan(const Attention& shape);

    cudaStream_t stream_;
    CudnnHandle cudnn_;
    GrowingBuffer own_workspace_;  ///< where the schedule has none, or too little
    std::map<Key, std::unique_ptr<AttentionPlan>> plans_;
};

}  // namespace headroom
