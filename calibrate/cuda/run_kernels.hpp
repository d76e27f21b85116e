// SPDX-License-Identifier: Apache-2.0
// The kernels, products, collectives and copies of one GPU's schedule, on operands of the right sizes. Plans are made
// once for each shape and kept from case to case.
#pragma once

#include <map>
#include <memory>
#include <tuple>
#include <vector>

#include "calibrate/attention_limits.hpp"
#include "calibrate/cuda/attention.hpp"
#include "calibrate/cuda/collective.hpp"
#include "calibrate/cuda/gemm_plan.hpp"
#include "calibrate/cuda/run_memory.hpp"
#include "calibrate/real_kernel.hpp"
#include "models/transformer.hpp"

namespace headroom {

class RunKernels {
 public:
    /// Attention runs on this stream alone.
    explicit RunKernels(cudaStream_t compute);

    /// Makes every plan and operand the schedule needs, and waits for it.
    void prepare(const Schedule& schedule, const TransformerShape& model);
    /// Device memory of the operands.
    std::int64_t scratch_bytes() const;
    /// What cuDNN takes beside the operands of one call, the largest of them.
    std::int64_t workspace_bytes(const Attention& shape) const;

    void attention(const Attention& shape) const;
    void gemm(const Event& event, cudaStream_t stream);
    void memory_bound(const Event& event, cudaStream_t stream);
    void collective(const Collective& op, const CommEnd& end, cudaStream_t stream);
    void copy(const Copy& op, HostBuffers& host, cudaStream_t stream);

 private:
    struct AttentionCalls {
        std::vector<HeadSlice> slices;
        std::vector<std::unique_ptr<AttentionPlan>> plans;
    };
    using AttentionKey = std::tuple<std::int64_t, std::int64_t, int, int, int, bool, bool>;
    using GemmKey = std::tuple<std::int64_t, std::int64_t, std::int64_t, ProductRole>;
    struct Need {
        std::int64_t in = 0, out = 0;
    };
    static AttentionKey key_of(const Attention& shape);
    static GemmKey key_of(const Event& event);
    Need need_of(const Event& event) const;
    Need need_of(const Attention& shape) const;
    void add_plan(const Attention& shape);
    void bind(const Attention& shape, AttentionCalls& calls);
    void launch(const MemoryLaunch& work, cudaStream_t stream);

    cudaStream_t compute_;
    CudnnHandle cudnn_;
    BlasHandle blas_;
    OperandRegion in_, out_;  ///< what kernels read, random numbers; and what they write
    DeviceBuffer exponents_;  ///< log-sum-exp that backward reads
    DeviceBuffer gemm_workspace_;
    std::map<AttentionKey, AttentionCalls> attention_;
    std::map<GemmKey, std::unique_ptr<GemmPlan>> gemms_;
    std::int64_t hidden_ = 0, head_dim_ = 0, heads_ = 0;
};

}  // namespace headroom
