// SPDX-License-Identifier: Apache-2.0
#include "calibrate/cuda/attention_calls.hpp"

#include <algorithm>

#include "calibrate/cuda/pointers.hpp"
#include "models/error.hpp"

namespace headroom {
namespace {

Attention part_of(const Attention& shape, const HeadSlice& heads) {
    Attention part = shape;
    part.heads = heads.heads;
    part.kv_heads = heads.kv_heads;
    return part;
}

/// The tensors as they begin for a slice of the heads; accumulator and delta serve one slice after the other.
AttentionTensors part_of(const AttentionTensors& whole, const Attention& shape, const HeadSlice& heads) {
    AttentionTensors part = whole;
    for (bf16** tensor : {&part.query, &part.out, &part.out_gradient, &part.query_gradient}) {
        if (*tensor != nullptr) *tensor += std::int64_t{heads.first} * shape.head_dim;
    }
    for (bf16** tensor : {&part.key, &part.value, &part.key_gradient, &part.value_gradient}) {
        if (*tensor != nullptr) *tensor += std::int64_t{heads.first_kv} * shape.head_dim;
    }
    part.exponent += heads.first * shape.query_len;
    return part;
}

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

template <class Calls>
std::int64_t largest_workspace(const Calls& calls) {
    std::int64_t most = 0;
    for (const auto& call : calls) most = std::max(most, call.plan->workspace_bytes());
    return most;
}

}  // namespace

std::vector<AttentionCalls::Call>& AttentionCalls::calls(const Attention& shape) {
    std::vector<Call>& made = calls_[{shape.query_len, shape.key_len, shape.heads, shape.kv_heads, shape.head_dim,
                                      shape.causal, shape.backward}];
    if (!made.empty()) return made;
    const AttentionStrides strides{std::int64_t{shape.heads} * shape.head_dim,
                                   std::int64_t{shape.kv_heads} * shape.head_dim};
    std::vector<Call> fresh;
    for (const HeadSlice& heads : head_slices(shape)) {
        auto plan = std::make_unique<AttentionPlan>(cudnn_.get(), part_of(shape, heads), strides);
        if (shape.head_dim == 128 && plan->shared_memory() < hopper_shared_memory) {
            throw Error("cuDNN chose an engine that is not the Hopper one", "",
                        "use cuDNN 9.14 or 9.19 on a Hopper GPU", ExitCode::failure);
        }
        fresh.push_back({heads, std::move(plan)});
    }
    return made = std::move(fresh);
}

void* AttentionCalls::workspace(std::int64_t needed, const AttentionCall& call, std::byte* of_schedule) {
    const bool enough = of_schedule != nullptr && call.workspace_bytes >= needed;
    return enough ? of_schedule : own_workspace_.at_least(needed, stream_);
}

void AttentionCalls::prepare(const AttentionCall& call, const Attention& shape) {
    const std::int64_t needed = largest_workspace(calls(shape));
    if (call.workspace.empty() || call.workspace_bytes < needed) own_workspace_.at_least(needed, stream_);
}

void AttentionCalls::run(const AttentionCall& call, const Attention& shape, const Addresses& at) {
    std::vector<Call>& all = calls(shape);
    void* place = workspace(largest_workspace(all), call, at[11]);
    const AttentionTensors whole = tensors_at(at);
    for (Call& one : all) {
        one.plan->bind(part_of(whole, shape, one.heads), place);
        one.plan->execute();
    }
}

std::int64_t AttentionCalls::needed_bytes(const Attention& shape) {
    std::int64_t most = 0;
    for (const Call& one : calls(shape)) {
        most = std::max(most, one.plan->workspace_bytes() + caller_workspace_bytes(part_of(shape, one.heads)));
    }
    return most;
}

}  // namespace headroom
