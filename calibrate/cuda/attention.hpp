// SPDX-License-Identifier: Apache-2.0
// Attention forward and backward through cuDNN's fused kernels, bf16, tensors [tokens, heads, head_dim], log-sum-exp
// (fp32 [heads, tokens], natural, of the scaled scores) out of forward and into backward. The mask is none, or causal
// from the top left corner: the other masks cuDNN knows cost backward the whole rectangle.
#pragma once

#include <cudnn.h>

#include <memory>

#include "calibrate/cuda/cudnn_graph.hpp"
#include "calibrate/cuda/kernels.hpp"
#include "models/schedule.hpp"

namespace headroom {

/// Elements between two tokens of one head: heads * head_dim of the tensor the slice of heads lies in.
struct AttentionStrides {
    std::int64_t query, key;
};

struct AttentionTensors {
    bf16 *query, *key, *value, *out;
    float* exponent;
    // backward
    bf16 *out_gradient, *query_gradient, *key_gradient, *value_gradient;
    float *accumulator, *delta;  ///< fp32 like query [heads, tokens, head_dim], and [heads, tokens]
};

/// The graph alone: what a plan is made from, and what tests ask engines for.
struct AttentionGraph {
    AttentionGraph(const Attention& shape, const AttentionStrides& strides);
    Graph graph;
    // indices into the graph; scalars by value
    Graph::Tensor query, key, value, out, exponent, scale, minus_infinity, one;
    Graph::Tensor out_gradient, query_gradient, key_gradient, value_gradient, accumulator, delta;
    Attention shape;
};

/// A plan for one shape, usable any number of times on the stream of its handle. What cuDNN would compute wrongly
/// is refused (require_attention).
class AttentionPlan {
 public:
    AttentionPlan(cudnnHandle_t handle, const Attention& shape, const AttentionStrides& strides);
    std::int64_t workspace_bytes() const { return plan_.workspace(); }
    std::int64_t shared_memory() const { return shared_memory_; }
    /// Checks the alignment of every address.
    void bind(const AttentionTensors& tensors, void* workspace);
    void execute() const { plan_.execute(handle_); }

 private:
    cudnnHandle_t handle_;
    AttentionGraph graph_;
    std::int64_t shared_memory_ = 0;
    ExecutionPlan plan_;
    // Read by cuDNN at every execute: they live as long as the plan.
    struct Scalars {
        float scale, minus_infinity, one;
    };
    std::unique_ptr<Scalars> scalars_;
};

/// A handle on one stream.
class CudnnHandle {
 public:
    explicit CudnnHandle(cudaStream_t stream);
    ~CudnnHandle() { cudnnDestroy(handle_); }
    CudnnHandle(const CudnnHandle&) = delete;
    CudnnHandle& operator=(const CudnnHandle&) = delete;
    cudnnHandle_t get() const { return handle_; }

 private:
    cudnnHandle_t handle_ = nullptr;
};

}  // namespace headroom
