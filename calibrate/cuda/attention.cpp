// SPDX-License-Identifier: Apache-2.0
#include "calibrate/cuda/attention.hpp"

#include <cmath>
#include <limits>

#include "calibrate/attention_limits.hpp"
#include "models/error.hpp"

namespace headroom {
namespace {

constexpr cudnnDataType_t io = CUDNN_DATA_BFLOAT16, real = CUDNN_DATA_FLOAT;

Dimensions transposed(const Dimensions& of) { return {of[0], of[1], of[3], of[2]}; }

Dimensions packed(const Dimensions& sizes) {
    return {sizes[1] * sizes[2] * sizes[3], sizes[2] * sizes[3], sizes[3], 1};
}

/// cuDNN recognises the pattern of these operations and runs one fused kernel. The order of every operation, the
/// types and which tensors are virtual all matter; a comment says where a variant fails silently.
class Writer {
 public:
    explicit Writer(AttentionGraph& all, const AttentionStrides& strides)
        : all_(all),
          g_(all.graph),
          queries_{a_.batch, a_.heads, a_.query_len, a_.head_dim},
          keys_{a_.batch, a_.kv_heads, a_.key_len, a_.head_dim},
          query_strides_{a_.query_len * strides.query, a_.head_dim, strides.query, 1},
          key_strides_{a_.key_len * strides.key, a_.head_dim, strides.key, 1},
          scores_{a_.batch, a_.heads, a_.query_len, a_.key_len},
          rows_{a_.batch, a_.heads, a_.query_len, 1} {}

    void forward() {
        all_.query = queries();
        all_.key = keys_transposed();
        all_.value = g_.real(keys_, key_strides_, io);
        Graph::Tensor scores = scaled_scores();
        if (a_.causal) scores = masked(scores);
        const Graph::Tensor top = row(), mass = row(), logarithm = row();
        const Graph::Tensor below = score(), weights = score();
        g_.reduce(CUDNN_REDUCE_TENSOR_MAX, scores, top);
        g_.binary(CUDNN_POINTWISE_SUB, scores, top, below);
        g_.unary(CUDNN_POINTWISE_EXP, below, weights);
        g_.reduce(CUDNN_REDUCE_TENSOR_ADD, weights, mass);
        g_.unary(CUDNN_POINTWISE_LOG, mass, logarithm);
        all_.exponent = g_.real(rows_, packed(rows_), real);
        g_.binary(CUDNN_POINTWISE_ADD, top, logarithm, all_.exponent);
        // Probabilities in fp32 would leave no engine at all.
        const Graph::Tensor probabilities = g_.intermediate(scores_, packed(scores_), io);
        g_.binary(CUDNN_POINTWISE_DIV, weights, mass, probabilities);
        all_.out = queries();
        g_.matmul(probabilities, all_.value, all_.out);
    }

    void backward() {
        all_.query = queries();
        all_.key = keys_transposed();
        all_.value = keys_transposed();
        all_.out = queries();
        all_.out_gradient = queries();
        all_.exponent = g_.real(rows_, packed(rows_), real);

        const Graph::Tensor products = g_.intermediate(queries_, packed(queries_), real), sums = row();
        g_.binary(CUDNN_POINTWISE_MUL, all_.out_gradient, all_.out, products);
        g_.reduce(CUDNN_REDUCE_TENSOR_ADD, products, sums);
        // Without this product by one dQ and dK are not numbers.
        all_.one = g_.scalar(real);
        all_.delta = g_.real(rows_, packed(rows_), real);
        g_.binary(CUDNN_POINTWISE_MUL, sums, all_.one, all_.delta);

        Graph::Tensor below = score();
        g_.binary(CUDNN_POINTWISE_SUB, scaled_scores(), all_.exponent, below);
        if (a_.causal) below = masked(below);
        const Graph::Tensor probabilities = score();
        g_.unary(CUDNN_POINTWISE_EXP, below, probabilities);
        all_.value_gradient = over_queries(probabilities, all_.out_gradient);

        const Graph::Tensor upstream = score(), centred = score(), weighted = score(), slopes = score();
        g_.matmul(all_.out_gradient, all_.value, upstream);
        g_.binary(CUDNN_POINTWISE_SUB, upstream, all_.delta, centred);
        g_.binary(CUDNN_POINTWISE_MUL, centred, probabilities, weighted);
        g_.binary(CUDNN_POINTWISE_MUL, weighted, all_.scale, slopes);
        all_.key_gradient = over_queries(slopes, all_.query);

        const Graph::Tensor keys = g_.intermediate(keys_, key_strides_, io);
        g_.reshape(all_.key, keys);
        // A virtual accumulator leaves only the Ampere engine; none at all, a workspace of all scores.
        all_.accumulator = g_.real(queries_, packed(queries_), real);
        g_.matmul(slopes, keys, all_.accumulator);
        all_.query_gradient = queries();
        g_.unary(CUDNN_POINTWISE_IDENTITY, all_.accumulator, all_.query_gradient);
    }

 private:
    Graph::Tensor queries() { return g_.real(queries_, query_strides_, io); }
    Graph::Tensor keys_transposed() { return g_.real(transposed(keys_), transposed(key_strides_), io); }
    Graph::Tensor score() { return g_.intermediate(scores_, packed(scores_), real); }
    Graph::Tensor row() { return g_.intermediate(rows_, packed(rows_), real); }

    Graph::Tensor scaled_scores() {
        const Graph::Tensor raw = score(), scaled = score();
        all_.scale = g_.scalar(real);
        g_.matmul(all_.query, all_.key, raw);
        g_.binary(CUDNN_POINTWISE_MUL, raw, all_.scale, scaled);
        return scaled;
    }

    /// Row >= column, in this order: written as column <= row the numbers are right, but no tile is skipped.
    Graph::Tensor masked(Graph::Tensor scores) {
        const auto index = [&] { return g_.intermediate(scores_, packed(scores_), CUDNN_DATA_INT32); };
        const Graph::Tensor rows = index(), columns = index();
        const Graph::Tensor keep = g_.intermediate(scores_, packed(scores_), CUDNN_DATA_BOOLEAN);
        g_.index(2, scores, rows);
        g_.index(3, scores, columns);
        g_.compare(CUDNN_POINTWISE_CMP_GE, rows, columns, keep);
        all_.minus_infinity = g_.scalar(real);
        const Graph::Tensor result = score();
        g_.select(keep, scores, all_.minus_infinity, result);
        return result;
    }

    /// scores^T times a query tensor: a gradient of keys or values, summed over the heads that share them.
    Graph::Tensor over_queries(Graph::Tensor scores, Graph::Tensor operand) {
        const Graph::Tensor turned = g_.intermediate(transposed(scores_), transposed(packed(scores_)), io);
        g_.reshape(scores, turned);
        const bool shared = a_.heads != a_.kv_heads;
        const Dimensions all_heads{a_.batch, a_.heads, a_.key_len, a_.head_dim};
        // In fp32 the sum over heads would be garbage.
        const Graph::Tensor each =
            shared ? g_.intermediate(all_heads, packed(all_heads), io) : g_.real(keys_, key_strides_, io);
        g_.matmul(turned, operand, each);
        if (!shared) return each;
        const Graph::Tensor sum = g_.real(keys_, key_strides_, io);
        g_.reduce(CUDNN_REDUCE_TENSOR_ADD, each, sum);
        return sum;
    }

    AttentionGraph& all_;
    Graph& g_;
    const Attention& a_ = all_.shape;
    Dimensions queries_, keys_, query_strides_, key_strides_, scores_, rows_;
};

}  // namespace

AttentionGraph::AttentionGraph(const Attention& wanted, const AttentionStrides& strides)
    : query{},
      key{},
      value{},
      out{},
      exponent{},
      scale{},
      minus_infinity{},
      one{},
      out_gradient{},
      query_gradient{},
      key_gradient{},
      value_gradient{},
      accumulator{},
      delta{},
      shape(wanted) {
    require_attention(shape);
    Writer writer(*this, strides);
    shape.backward ? writer.backward() : writer.forward();
}

AttentionPlan::AttentionPlan(cudnnHandle_t handle, const Attention& shape, const AttentionStrides& strides)
    : handle_(handle), graph_(shape, strides), scalars_(std::make_unique<Scalars>()) {
    require_cudnn(static_cast<std::int64_t>(cudnnGetVersion()));
    *scalars_ = {1 / std::sqrt(static_cast<float>(shape.head_dim)), -std::numeric_limits<float>::infinity(), 1.0F};
    const Graph::Engines engines = graph_.graph.engines({handle, nullptr});
    shared_memory_ = engines.shared_memory(0);
    plan_ = ExecutionPlan(handle, engines.configs.front());
}

void AttentionPlan::bind(const AttentionTensors& t, void* workspace) {
    std::vector<std::pair<std::int64_t, void*>> pointers;
    const auto add = [&](Graph::Tensor tensor, void* address) {
        require_aligned({address});
        pointers.emplace_back(Graph::id(tensor), address);
    };
    add(graph_.query, t.query);
    add(graph_.key, t.key);
    add(graph_.value, t.value);
    add(graph_.out, t.out);
    add(graph_.exponent, t.exponent);
    if (graph_.shape.backward) {
        add(graph_.out_gradient, t.out_gradient);
        add(graph_.query_gradient, t.query_gradient);
        add(graph_.key_gradient, t.key_gradient);
        add(graph_.value_gradient, t.value_gradient);
        add(graph_.accumulator, t.accumulator);
        add(graph_.delta, t.delta);
        pointers.emplace_back(Graph::id(graph_.one), &scalars_->one);
    }
    pointers.emplace_back(Graph::id(graph_.scale), &scalars_->scale);
    if (graph_.shape.causal) pointers.emplace_back(Graph::id(graph_.minus_infinity), &scalars_->minus_infinity);
    require_aligned({workspace});
    plan_.bind(pointers, workspace);
}

CudnnHandle::CudnnHandle(cudaStream_t stream) {
    check_cudnn(cudnnCreate(&handle_), "cudnnCreate");
    check_cudnn(cudnnSetStream(handle_, stream), "cudnnSetStream");
}

}  // namespace headroom
