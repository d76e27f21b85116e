// SPDX-License-Identifier: Apache-2.0
#include "calibrate/cuda/attention_calls.hpp"

#include "calibrate/cuda/pointers.hpp"
#include "models/error.hpp"

namespace headroom {
namespace {

AttentionTensors tensors_at(const Addresses& at) {
    return {.query = halves(at[0]),
            .key = halves(at[1]),
            .value = halves(at[2]),
            .out = halves(at[3]),
            .exponent = floats(at[4]),
            .out_gradient = halves(at[5]),
            .query_gradient = halves(at[6]),
            .key_gradient = halves(at[7]),
            .value_gradient = halves(at[8]),
            .accumulator = floats(at[9]),
            .delta = floats(at[10])};
}

}  // namespace

AttentionPlan& AttentionCalls::plan(const Attention& shape) {
    std::unique_ptr<AttentionPlan>& made = plans_[{shape.query_len, shape.key_len, shape.heads, shape.kv_heads,
                                                   shape.head_dim, shape.causal, shape.backward}];
    if (made) return *made;
    const AttentionStrides strides{std::int64_t{shape.heads} * shape.head_dim,
                                   std::int64_t{shape.kv_heads} * shape.head_dim};
    auto plan = std::make_unique<AttentionPlan>(cudnn_.get(), shape, strides);
    if (shape.head_dim == 128 && plan->shared_memory() < hopper_shared_memory) {
        throw Error("cuDNN chose an engine that is not the Hopper one", "", "use cuDNN 9.14 or 9.19 on a Hopper GPU",
                    ExitCode::failure);
    }
    made = std::move(plan);
    return *made;
}

void AttentionCalls::prepare(const AttentionCall& call, const Attention& shape) {
    const std::int64_t needed = plan(shape).workspace_bytes();
    if (call.workspace.empty() || call.workspace_bytes < needed) own_workspace_.at_least(needed, stream_);
}

void AttentionCalls::run(const AttentionCall& call, const Attention& shape, const Addresses& at) {
    AttentionPlan& of_shape = plan(shape);
    const std::int64_t needed = of_shape.workspace_bytes();
    const bool enough = at[11] != nullptr && call.workspace_bytes >= needed;
    of_shape.bind(tensors_at(at), enough ? at[11] : own_workspace_.at_least(needed, stream_));
    of_shape.execute();
}

std::int64_t AttentionCalls::needed_bytes(const Attention& shape) {
    return plan(shape).workspace_bytes() + caller_workspace_bytes(shape);
}

}  // namespace headroom
