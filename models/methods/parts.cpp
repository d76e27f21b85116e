// SPDX-License-Identifier: Apache-2.0
// Pieces that several methods share: projections, all-to-alls, kernel workspaces, and the choice of the method.
#include "models/methods/method.hpp"

namespace headroom {

KernelWorkspace backward_workspace(AttentionKernel kernel, Bytes query, Bytes key, Bytes lse, std::int64_t group) {
    KernelWorkspace need;
    need.query_accumulator = 2 * query;  // fp32 dQ, in every kernel
    need.row_sums = 2 * lse;
    const bool grouped = group > 1;
    switch (kernel) {
        case AttentionKernel::fa3:  // fp32 dk_accum and dv_accum (FA hopper/flash_api.cpp)
            if (grouped) need.key_accumulators = 4 * key;
            break;
        case AttentionKernel::fa2:  // dk_expanded and dv_expanded, one bf16 head per query head
            if (grouped) need.key_accumulators = 2 * group * key;
            break;
        case AttentionKernel::cudnn:  // plan workspace 2*b*H*Skv*(D+Dv); delta alone beside the accumulator
            if (grouped) need.key_accumulators = 2 * group * key;
            need.row_sums = lse;
            break;
    }
    return need;
}

void project(Step& step, const char* name, std::int64_t columns) {
    step.to.gemm(name, step.work.tokens, columns, step.work.model.hidden);
}

void project_backward(Step& step, const char* input_name, std::int64_t columns) {
    step.to.gemm(input_name, step.work.tokens, step.work.model.hidden, columns);
    step.to.gemm("weight gradient", columns, step.work.model.hidden, step.work.tokens);
}

TensorId output_projection(Step& step) {
    const TensorId result = step.attention("attention result", step.work.hidden);
    step.to.gemm("output projection", step.work.tokens, step.work.model.hidden, step.work.model.query_width());
    return result;
}

TensorId output_projection_backward(Step& step, TensorId projected) {
    const TensorId gradient = step.attention("gradient of projected output", step.work.query);
    step.weight_gradient("gradient of wo", step.work.parameters.output);
    step.to.gemm("output projection, input gradient", step.work.tokens, step.work.model.query_width(),
                 step.work.model.hidden);
    step.to.gemm("output projection, weight gradient", step.work.model.hidden, step.work.model.query_width(),
                 step.work.tokens);
    step.release(projected);
    return gradient;
}

TensorId gather_sequence(Step& step, const char* name, Bytes bytes) {
    const bool copies = step.traits.exchange_copies;
    if (step.work.recipe.ulysses == 1) {
        // Nothing to exchange; the shipped helper still allocates a buffer that nobody reads.
        if (step.traits.copies_alone) step.release(step.exchange("unused all-to-all buffer", bytes));
        return no_tensor;
    }
    TensorId send = no_tensor;
    if (copies) {
        send = step.exchange("all-to-all send copy", bytes);
        step.transpose("copy before all-to-all", 2 * bytes);
    }
    const TensorId received = step.attention(name, bytes);
    step.to.collective("all-to-all", Stream::ulysses, CollectiveKind::all_to_all, CommGroup::ulysses, bytes, true);
    step.release(send);
    return received;
}

TensorId scatter_sequence(Step& step, const char* name, Bytes bytes, bool single_head) {
    const bool copies = step.traits.exchange_copies;
    const bool alone = step.work.recipe.ulysses == 1;
    if (alone && !step.traits.copies_alone) return no_tensor;
    TensorId send = no_tensor;
    if (copies && !single_head) {
        send = step.exchange("all-to-all send copy", bytes);
        step.transpose("copy before all-to-all", 2 * bytes);
    }
    if (!copies) {
        const TensorId received = step.attention(name, bytes);
        step.to.collective("all-to-all", Stream::ulysses, CollectiveKind::all_to_all, CommGroup::ulysses, bytes, true);
        return received;
    }
    const TensorId received = step.exchange("all-to-all receive buffer", bytes);
    if (!alone) {
        step.to.collective("all-to-all", Stream::ulysses, CollectiveKind::all_to_all, CommGroup::ulysses, bytes, true);
        step.release(send);
        send = no_tensor;
    }
    const TensorId result = step.attention(name, bytes);
    step.transpose("copy after all-to-all", 2 * bytes);
    step.release(send, received);
    return result;
}

Kept attention_forward(Step& step, bool keep) {
    switch (step.work.recipe.method) {
        case Method::native:
            return native_forward(step, keep);
        case Method::fpdt:
            return fpdt_forward(step, keep);
        case Method::upipe:
            return upipe_forward(step, keep);
        case Method::ring:
        case Method::ulysses:
        case Method::usp:
            break;
    }
    return usp_forward(step, keep);
}

TensorId attention_backward(Step& step, Kept& kept) {
    switch (step.work.recipe.method) {
        case Method::native:
            return native_backward(step, kept);
        case Method::fpdt:
            return fpdt_backward(step, kept);
        case Method::upipe:
            return upipe_backward(step, kept);
        case Method::ring:
        case Method::ulysses:
        case Method::usp:
            break;
    }
    return usp_backward(step, kept);
}

}  // namespace headroom
