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
        case AttentionKernel::cudnn:  // plan workspace 256+2*b*H*Skv*(D+Dv); delta alone beside the accumulator
            if (grouped) need.key_accumulators = 2 * group * key + Bytes{256};
            need.row_sums = lse;
            break;
    }
    return need;
}

Projection projection(const Step& step, std::int64_t columns, View weight) {
    return {step.work.tokens, columns, step.work.recipe.ulysses, step.operands.input, weight};
}

Product forward_product(const Step& step, const Projection& of, View result) {
    const std::int64_t hidden = step.work.model.hidden;
    const std::int64_t width = of.columns / of.blocks;
    return {.m = of.rows,
            .n = width,
            .k = hidden,
            .batch = of.blocks,
            .a = {of.input, hidden, 0, false},
            .b = {of.weight, hidden, width * hidden, true},
            .c = {result, width, of.rows * width, false}};
}

Product input_product(const Step& step, const Projection& of, View gradient, View input_gradient, bool accumulate) {
    const std::int64_t hidden = step.work.model.hidden;
    const std::int64_t width = of.columns / of.blocks;
    return {.m = of.rows,
            .n = hidden,
            .k = width,
            .batch = of.blocks,
            .a = {gradient, width, of.rows * width, false},
            .b = {of.weight, hidden, width * hidden, false},
            .c = {input_gradient, hidden, 0, false},
            .accumulate = accumulate};
}

Product weight_product(const Step& step, const Projection& of, View gradient, View weight_gradient, bool accumulate) {
    const std::int64_t hidden = step.work.model.hidden;
    const std::int64_t width = of.columns / of.blocks;
    return {.m = width,
            .n = hidden,
            .k = of.rows,
            .batch = of.blocks,
            .a = {gradient, width, of.rows * width, true},
            .b = {of.input, hidden, 0, false},
            .c = {weight_gradient, hidden, width * hidden, false},
            .accumulate = accumulate};
}

void project(Step& step, const char* name, const Projection& of, View result) {
    step.to.gemm(name, of.rows, of.columns, step.work.model.hidden);
    step.to.computes(forward_product(step, of, result));
}

void project_backward(Step& step, const char* input_name, const Projection& of, View gradient, View input_gradient,
                      bool accumulate, View weight_gradient) {
    step.to.gemm(input_name, of.rows, step.work.model.hidden, of.columns);
    step.to.computes(input_product(step, of, gradient, input_gradient, accumulate));
    step.to.gemm("weight gradient", of.columns, step.work.model.hidden, of.rows);
    step.to.computes(weight_product(step, of, gradient, weight_gradient, false));
}

Rotary rotation(const Step& step, View data, std::int64_t columns, std::int64_t first_row, std::int64_t rows,
                bool back) {
    const std::int64_t blocks = step.work.recipe.ulysses;
    const std::int64_t head_dim = step.work.model.head_dim;
    const View table = step.operands.rotary_table + 4 * first_row * head_dim;
    return {data, table, blocks, rows, columns / blocks, static_cast<std::int32_t>(head_dim), back};
}

TensorId output_projection(Step& step, TensorId projected, std::int64_t blocks, std::int64_t chunks) {
    const Workload& work = step.work;
    const std::int64_t rows = work.tokens / chunks;
    const std::int64_t hidden = work.model.hidden;
    const std::int64_t columns = work.model.query_width();
    const std::int64_t width = columns / blocks;
    const TensorId result = step.attention("attention result", work.hidden);
    step.to.gemm("output projection", work.tokens, hidden, columns);
    for (std::int64_t chunk = 0; chunk < chunks && step.to.describing(); ++chunk) {
        step.to.computes(
            Product{.m = rows,
                    .n = hidden,
                    .k = width,
                    .batch = blocks,
                    .a = {View(projected) + chunk * (work.query.value / chunks), width, rows * width, false},
                    .b = {step.operands.output_weight, columns, width, true},
                    .c = {View(result) + chunk * (work.hidden.value / chunks), hidden, 0, false}});
    }
    return result;
}

TensorId output_projection_backward(Step& step, TensorId projected, std::int64_t blocks, bool frees,
                                    std::int64_t chunks) {
    const Workload& work = step.work;
    const std::int64_t rows = work.tokens / chunks;
    const std::int64_t hidden = work.model.hidden;
    const std::int64_t columns = work.model.query_width();
    const std::int64_t width = columns / blocks;
    const TensorId gradient = step.attention("gradient of projected output", work.query);
    const TensorId weight = step.weight_gradient("gradient of wo", work.parameters.output);
    const auto result_gradient = [&](std::int64_t chunk) {
        return step.operands.result_gradient + chunk * (work.hidden.value / chunks);
    };
    const auto part = [&](TensorId tensor, std::int64_t chunk) {
        return View(tensor) + chunk * (work.query.value / chunks);
    };
    step.to.gemm("output projection, input gradient", work.tokens, columns, hidden);
    for (std::int64_t chunk = 0; chunk < chunks && step.to.describing(); ++chunk) {
        step.to.computes(Product{.m = rows,
                                 .n = width,
                                 .k = hidden,
                                 .batch = blocks,
                                 .a = {result_gradient(chunk), hidden, 0, false},
                                 .b = {step.operands.output_weight, columns, width, false},
                                 .c = {part(gradient, chunk), width, rows * width, false}});
    }
    step.to.gemm("output projection, weight gradient", hidden, columns, work.tokens);
    for (std::int64_t chunk = 0; chunk < chunks && step.to.describing(); ++chunk) {
        step.to.computes(Product{.m = hidden,
                                 .n = width,
                                 .k = rows,
                                 .batch = blocks,
                                 .a = {result_gradient(chunk), hidden, 0, true},
                                 .b = {part(projected, chunk), width, rows * width, false},
                                 .c = {weight, columns, width, false},
                                 .accumulate = chunk > 0});
    }
    if (frees) step.release(projected);
    return gradient;
}

void exchange_into(Step& step, View from, View to, Bytes bytes) {
    step.to.collective("all-to-all", Stream::ulysses, CollectiveKind::all_to_all, CommGroup::ulysses, bytes, true);
    step.to.computes(Exchange{{from, to, bytes.value}});
}

TensorId gather_sequence(Step& step, const char* name, View from, Bytes bytes) {
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
    exchange_into(step, from, received, bytes);
    step.release(send);
    return received;
}

TensorId scatter_sequence(Step& step, const char* name, View from, Bytes bytes, bool single_head) {
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
        exchange_into(step, from, received, bytes);
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
            return step.traits.megatron ? fpdt_forward(step, keep) : fpdt_lean_forward(step, keep);
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
            return step.traits.megatron ? fpdt_backward(step, kept) : fpdt_lean_backward(step, kept);
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
