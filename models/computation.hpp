// SPDX-License-Identifier: Apache-2.0
// What a launch of a schedule computes, and on which parts of which tensors. The planner and the simulator need none of
// it; a described schedule can be run, on a GPU or in plain arithmetic, and its results compared with attention itself.
//
// Layouts. Activations are rows of tokens. Tensors that go through an all-to-all lie in blocks, [blocks][rows][width of
// a block], block c for rank c, so that neither sending nor receiving needs a copy: a projection writes its columns in
// blocks, and one that reads blocks sums over them. Attention sees [tokens][heads][head_dim] and log-sum-exp as fp32
// [heads][tokens]. Weights are [out][in]. "Narrow" elements have the compute format, "wide" ones twice its bytes; what
// lives from step to step is fp32.
#pragma once

#include <array>
#include <cstdint>
#include <variant>

namespace headroom {

/// A place in a tensor, in bytes from its start.
struct View {
    std::uint32_t tensor = ~std::uint32_t{0};
    std::int64_t offset = 0;

    constexpr View() = default;
    constexpr View(std::uint32_t whole, std::int64_t bytes = 0) : tensor(whole), offset(bytes) {}
    constexpr View operator+(std::int64_t bytes) const { return {tensor, offset + bytes}; }
    constexpr bool empty() const { return tensor == ~std::uint32_t{0}; }
};

/// Row-major [rows][row_stride] in narrow elements, `batch_stride` elements from one batch to the next.
struct Matrix {
    View view;
    std::int64_t row_stride = 0;
    std::int64_t batch_stride = 0;
    bool transposed = false;
};

/// C[m,n] = A[m,k] B[k,n], `batch` times; a result without batch stride is the sum. `accumulate` adds to what C holds.
struct Product {
    std::int64_t m, n, k, batch;
    Matrix a, b, c;
    bool accumulate = false;
};

/// Turns every head of [blocks][rows][width] in place by the angle of its row: the pairs (2i, 2i+1) as complex numbers
/// times table[row][i] = (cosine, sine), fp32. `back` is the gradient's turn.
struct Rotary {
    View data, table;
    std::int64_t blocks, rows, width;
    std::int32_t head_dim;
    bool back = false;
};

/// The shape is that of the event. The gradients stay empty in forward; accumulator, delta and workspace (of
/// `workspace_bytes`, where the schedule has one) are scratch of backward.
struct AttentionCall {
    View query = {}, key = {}, value = {}, output = {}, exponent = {};
    View output_gradient = {}, query_gradient = {}, key_gradient = {}, value_gradient = {}, accumulator = {},
         delta = {}, workspace = {};
    std::int64_t workspace_bytes = 0;
};

struct Move {
    View from, to;
    std::int64_t bytes = 0;
};

/// Block r of `from` goes to rank r of the Ulysses group, which receives it as its block of the sender.
struct Exchange {
    Move move;
};

/// Every tensor goes to the next rank of the ring, and that of the rank before arrives.
struct PassOn {
    std::array<Move, 2> moves;
};

/// Copies between host and device, or on the device.
struct Transfer {
    std::array<Move, 5> moves;
};

struct Convert {
    View from, to;
    std::int64_t elements;
    bool widen;
};

/// sum += term (narrow).
struct AddTo {
    View sum, term;
    std::int64_t elements;
    bool wide_sum = true;
};

/// Rows [first_row, first_row + rows) of `sum` (wide, [total_rows][heads][head_dim]) and `exponent`
/// ([heads][total_rows]) take in the attention of one more key block. The `first` one is taken as it is.
struct Merge {
    View sum, exponent, block, block_exponent;
    std::int64_t rows, first_row, total_rows;
    std::int32_t heads, head_dim;
    bool first;
};

/// Rows [first_row, first_row + rows) of every head of a log-sum-exp.
struct SliceExponent {
    View from, to;
    std::int64_t rows, first_row, total_rows;
    std::int32_t heads;
};

/// out = in / rms(in) * weight, row by row. `out` may lie over `in`.
struct Norm {
    View in, weight, out;
    std::int64_t rows, width;
};

/// `weight_gradient` (narrow) is the sum over the rows. `in_gradient` may lie over `gradient`.
struct NormBackward {
    View in, weight, gradient, in_gradient, weight_gradient;
    std::int64_t rows, width;
};

/// out = silu(gate) * up
struct Gate {
    View gate, up, out;
    std::int64_t elements;
};

/// The gradients may lie over gate and up.
struct GateBackward {
    View gate, up, gradient, gate_gradient, up_gradient;
    std::int64_t elements;
};

/// out = a + b, narrow.
struct Sum {
    View a, b, out;
    std::int64_t elements;
};

/// Rows of `table` [vocabulary][width]; tokens are 64-bit integers.
struct Embedding {
    View table, tokens, out;
    std::int64_t rows, width, vocabulary;
};

/// Writes the whole gradient: zeros where no token points.
struct EmbeddingBackward {
    View gradient, tokens, table_gradient;
    std::int64_t rows, width, vocabulary;
};

/// Logits [rows][columns] become their gradient, (softmax - one at the label) * weight; `losses` (fp32) are those of
/// the rows, without the weight. Labels are 64-bit integers.
struct CrossEntropy {
    View logits, labels, losses;
    std::int64_t rows, columns;
    float weight;
};

/// Every rank of the sharding group gives its `elements` of fp32 parameters; all get all, narrow, in the order of
/// ranks.
struct GatherShards {
    View shard, whole;
    std::int64_t elements;
};

/// Sums `whole` (fp32) over the sharding group; rank r gets the r-th part of `elements`.
struct ReduceScatter {
    View whole, shard;
    std::int64_t elements;
};

/// Narrow to fp32.
struct CopyIn {
    View from, to;
    std::int64_t elements;
};

/// One step of AdamW, all fp32: rate 3e-4, betas 0.9 and 0.95, epsilon 1e-8, decay 0.1 of the rate. Steps are counted
/// by whatever computes.
struct Adam {
    View parameter, first_moment, second_moment, gradient;
    std::int64_t elements;
};

using Computation = std::variant<Product, Rotary, AttentionCall, Exchange, PassOn, Transfer, Convert, AddTo, Merge,
                                 SliceExponent, Norm, NormBackward, Gate, GateBackward, Sum, Embedding,
                                 EmbeddingBackward, CrossEntropy, GatherShards, ReduceScatter, CopyIn, Adam>;

}  // namespace headroom
