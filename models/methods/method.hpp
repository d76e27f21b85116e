// SPDX-License-Identifier: Apache-2.0
// The attention part of a transformer block, one file per method: from the normed hidden state to the block's
// attention output, forwards and backwards, as allocations and launches.
#pragma once

#include <vector>

#include "models/methods/traits.hpp"
#include "models/schedule.hpp"
#include "models/workload.hpp"

namespace headroom {

inline constexpr TensorId no_tensor = ~TensorId{0};

/// What attention and the block around it read of their surroundings; given only where the schedule is described.
struct Operands {
    View input;                                                  ///< the normed hidden state [rows][D]
    View query_weight, key_weight, value_weight, output_weight;  ///< [out][in]
    View result_gradient;                                        ///< gradient of the attention result [rows][D]
    View query_norm, key_norm;                                   ///< weights of the QK norm, [d]
    View rotary_table;                                           ///< fp32 [rows][d/2][2] of the rank's rows
    // Of the block around it:
    View block_input;                          ///< [rows][D]
    View input_norm, residual_norm;            ///< weights of the norms
    View gate_weight, up_weight, down_weight;  ///< of the MLP
};

/// Everything a method writes with.
struct Step {
    Builder& to;
    const Workload& work;
    const Traits& traits;
    std::vector<TensorId>& weight_gradients;  ///< unsharded gradients of the running block, freed when it is reduced
    Operands operands = {};

    TensorId attention(const char* name, Bytes bytes) { return to.allocate(name, Group::attention, bytes); }
    TensorId exchange(const char* name, Bytes bytes) { return to.allocate(name, Group::communication, bytes); }
    TensorId workspace(const char* name, Bytes bytes) { return to.allocate(name, Group::attention, bytes); }
    TensorId weight_gradient(const char* name, std::int64_t parameters) {
        return weight_gradients.emplace_back(to.allocate(name, Group::gradients, work.weights(parameters)));
    }
    void release(TensorId tensor) {
        if (tensor != no_tensor) to.release(tensor);
    }
    template <class... Ids>
    void release(TensorId first, Ids... rest) {
        release(first);
        (release(rest), ...);
    }
    /// Element-wise work on the compute stream: bytes read plus written, split evenly between the two.
    void eager(const char* name, Bytes moved, std::int64_t launches = 1) {
        to.memory_bound(name, MemoryKernel::eager, moved / 2, moved - moved / 2, launches);
    }
    /// Element-wise work on two number formats, or with a broadcast operand.
    void mixed(const char* name, Bytes moved, std::int64_t launches = 1) {
        to.memory_bound(name, MemoryKernel::mixed_add, moved - moved / 3, moved / 3, launches);
    }
    void copy(const char* name, Bytes moved, std::int64_t launches = 1) {
        to.memory_bound(name, MemoryKernel::copy, moved / 2, moved - moved / 2, launches);
    }
    void transpose(const char* name, Bytes moved, std::int64_t launches = 1) {
        to.memory_bound(name, MemoryKernel::transpose, moved / 2, moved - moved / 2, launches);
    }
};

/// Tensors that attention leaves for its backward. A method uses those it needs.
struct Kept {
    TensorId query = no_tensor;  ///< as the kernel saw it
    TensorId key = no_tensor;
    TensorId value = no_tensor;
    TensorId query_raw = no_tensor;  ///< before the QK norm
    TensorId key_raw = no_tensor;    ///< with FPDT, what is on the host
    TensorId output = no_tensor;     ///< of the kernel
    TensorId lse = no_tensor;
    TensorId projected = no_tensor;  ///< input of the output projection
    TensorId result = no_tensor;     ///< attention output, hidden wide; the block owns it
};

/// Bytes that the backward kernel needs beside its inputs and outputs, for `query` and `key` bytes of Q and K that it
/// works on (bf16), with `group` query heads per KV head.
struct KernelWorkspace {
    Bytes query_accumulator;  ///< fp32 dQ
    Bytes key_accumulators;   ///< per-query-head or fp32 dK and dV, when heads are grouped
    Bytes row_sums;           ///< softmax_d and scaled log-sum-exp
};
KernelWorkspace backward_workspace(AttentionKernel kernel, Bytes query, Bytes key, Bytes lse, std::int64_t group);

/// y = x W^T for the columns of one of q, k, v: `rows` of the hidden state, W [columns][D], y
/// [blocks][rows][columns/blocks].
struct Projection {
    std::int64_t rows, columns, blocks;
    View input, weight;
};
Projection projection(const Step& step, std::int64_t columns, View weight);

Product forward_product(const Step& step, const Projection& of, View result);
/// Gradient of the input; sums over blocks.
Product input_product(const Step& step, const Projection& of, View gradient, View input_gradient, bool accumulate);
Product weight_product(const Step& step, const Projection& of, View gradient, View weight_gradient, bool accumulate);

void project(Step& step, const char* name, const Projection& of, View result);
/// The gradients of the input (added to it with `accumulate`) and of the weights.
void project_backward(Step& step, const char* input_name, const Projection& of, View gradient, View input_gradient,
                      bool accumulate, View weight_gradient);
/// Attention output [blocks][rows][H*d/blocks] -> hidden state.
/// `chunks` row groups of such blocks lie behind each other where FPDT made them.
TensorId output_projection(Step& step, TensorId projected, std::int64_t blocks, std::int64_t chunks = 1);
/// Returns the gradient of `projected`, and frees that where the caller does not need it any more.
TensorId output_projection_backward(Step& step, TensorId projected, std::int64_t blocks, bool frees,
                                    std::int64_t chunks = 1);

/// All-to-all that turns sequence shards into head shards; returns the tensor of the head shard. The caller frees
/// `from` when it no longer needs it.
TensorId gather_sequence(Step& step, const char* name, View from, Bytes bytes);
/// The inverse. `single_head` saves the copy before it: the view is already contiguous.
TensorId scatter_sequence(Step& step, const char* name, View from, Bytes bytes, bool single_head);

/// The exchange alone, between tensors that exist.
void exchange_into(Step& step, View from, View to, Bytes bytes);

/// Runs attention forward from the normed hidden state; with `keep`, leaves what backward needs, else only `result`.
Kept attention_forward(Step& step, bool keep);
/// Consumes what `attention_forward` kept and returns the gradient of the normed hidden state. Besides `kept`, the
/// normed hidden state and the incoming gradient are alive; the block owns both.
TensorId attention_backward(Step& step, Kept& kept);

/// The turn of `columns` of q or k over `rows` of the rank's rows, from `first_row` on, in blocks of the Ulysses
/// degree.
Rotary rotation(const Step& step, View data, std::int64_t columns, std::int64_t first_row, std::int64_t rows,
                bool back);

/// Rotary embedding of q and k, in place or as the eager complex product; and its gradient.
/// Both are blocks of the Ulysses degree.
void rotate(Step& step, TensorId& query, TensorId& key);
void rotate_backward(Step& step, TensorId& query_gradient, TensorId& key_gradient);

/// Attention over the sequence shards of the ring (one shard when the ring is 1). Fills `output` and `lse` of `kept`
/// from its query, key and value; with `keep`, these stay.
void ring_forward(Step& step, Kept& kept);
/// Gradients of query, key and value, from what ring_forward left and the gradient of its output. Frees all of them.
struct QkvGradients {
    TensorId query, key, value;
};
QkvGradients ring_backward(Step& step, Kept& kept, TensorId output_gradient);

// One pair per file. ulysses is usp with a ring of one, ring is usp with a Ulysses degree of one.
Kept usp_forward(Step& step, bool keep);
TensorId usp_backward(Step& step, Kept& kept);
Kept upipe_forward(Step& step, bool keep);
TensorId upipe_backward(Step& step, Kept& kept);
Kept native_forward(Step& step, bool keep);
TensorId native_backward(Step& step, Kept& kept);
Kept fpdt_forward(Step& step, bool keep);
TensorId fpdt_backward(Step& step, Kept& kept);
Kept fpdt_lean_forward(Step& step, bool keep);
TensorId fpdt_lean_backward(Step& step, Kept& kept);

}  // namespace headroom
