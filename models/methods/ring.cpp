// SPDX-License-Identifier: Apache-2.0
// Zig-zag ring attention: K and V travel, every rank meets every block. Methods: section 2 of the accuracy page's
// sources (long-context-attention ring/zigzag_ring_flash_attn.py).
//
//     for each step: send k, v on; out, lse = merge(out, lse, attend(q, k, v)); k, v = received
//
// After the first step a rank attends either with its whole query to the first half of a block that lies before it, or
// with the second half of its query to a whole later block. Ring rank 0 only ever meets later blocks.
#include <array>
#include <utility>

#include "models/methods/method.hpp"

namespace headroom {
namespace {

struct RingShape {
    std::int64_t degree;
    Attention kernel;  ///< of the first step
};

RingShape ring_shape(const Workload& work) {
    RingShape shape{};
    shape.degree = work.recipe.ring;
    shape.kernel = {.query_len = work.ring_tokens(),
                    .key_len = work.ring_tokens(),
                    .heads = static_cast<std::int32_t>(work.model.heads / work.recipe.ulysses),
                    .kv_heads = static_cast<std::int32_t>(work.kv_heads / work.recipe.ulysses),
                    .head_dim = static_cast<std::int32_t>(work.model.head_dim),
                    .batch = static_cast<std::int32_t>(work.recipe.batch),
                    .causal = true,
                    .backward = false};
    return shape;
}

/// What a rank attends with and to in one step.
struct Round {
    bool whole_query, whole_key;
    Attention kernel;
    Bytes query, key, lse;  ///< of the parts used
    std::int64_t query_offset;
};

Round round_of(const Workload& work, const RingShape& shape, std::int64_t round, bool backward) {
    Round now{true, true, shape.kernel, work.query, work.key, work.lse, 0};
    now.kernel.backward = backward;
    if (round == 0) return now;
    now.kernel.causal = false;
    if (work.meets_earlier(round)) {
        now.whole_key = false;
        now.key = work.key / 2;
        now.kernel.key_len /= 2;
    } else {
        now.whole_query = false;
        now.query = work.query / 2;
        now.lse = work.lse / 2;
        now.kernel.query_len /= 2;
        now.query_offset = work.query.value / 2;
    }
    return now;
}

/// Passes tensors to the next rank beside the kernels that follow.
void send_on(Step& step, const char* name, Bytes message, const std::array<Move, 2>& moves) {
    step.to.wait(Stream::ring, step.to.record(Stream::compute));
    step.to.collective(name, Stream::ring, CollectiveKind::send_recv, CommGroup::ring, message, false);
    step.to.computes(PassOn{moves});
}

struct KeyValue {
    TensorId key = no_tensor, value = no_tensor;
};

/// Sends the current K and V on, and makes room for those of the rank before.
KeyValue pass_on(Step& step, TensorId key, TensorId value) {
    const Bytes bytes = step.work.key;
    const KeyValue next{step.exchange("next key", bytes), step.exchange("next value", bytes)};
    send_on(step, "ring: K and V", 2 * bytes, {Move{key, next.key, bytes.value}, {value, next.value, bytes.value}});
    return next;
}

/// The shipped code follows every wait with a barrier on the ring group that holds the host back.
void receive(Step& step) {
    step.to.wait(Stream::compute, step.to.record(Stream::ring));
    if (!step.traits.eager_merge) return;
    step.to.collective("ring barrier", Stream::ring, CollectiveKind::barrier, CommGroup::ring, {0}, true);
    step.to.host_wait("ring barrier", Stream::compute);
}

/// out = merge(out, block): in place when fused, with fp32 temporaries when eager.
void merge(Step& step, Bytes block) {
    if (!step.traits.eager_merge) {
        step.eager("merge partial attention", 5 * block);
        return;
    }
    const TensorId difference = step.workspace("merge: difference, fp32", 2 * block);
    const TensorId product = step.workspace("merge: product, fp32", 2 * block);
    step.mixed("merge partial attention", 19 * block, 8);
    step.release(difference, product);
}

}  // namespace

void ring_forward(Step& step, Kept& kept) {
    const Workload& work = step.work;
    const RingShape shape = ring_shape(work);
    const bool alone = shape.degree == 1;

    if (alone && !step.traits.fp32_output) {
        kept.output = step.attention("attention output", work.query);
        kept.lse = step.attention("log-sum-exp", work.lse);
        step.to.attention("attention", shape.kernel);
        step.to.computes(AttentionCall{
            .query = kept.query, .key = kept.key, .value = kept.value, .output = kept.output, .exponent = kept.lse});
        return;
    }

    TensorId key = kept.key;
    TensorId value = kept.value;
    TensorId output = no_tensor;  // fp32
    TensorId block_output = no_tensor;
    const bool merges_in_place = !step.traits.eager_merge;
    if (alone || merges_in_place) kept.lse = step.attention("log-sum-exp", work.lse);
    for (std::int64_t round = 0; round < shape.degree; ++round) {
        const bool last = round + 1 == shape.degree;
        const Round now = round_of(work, shape, round, false);
        const auto [next_key, next_value] = last ? KeyValue{} : pass_on(step, key, value);
        block_output = step.attention("block output", now.query);
        const TensorId block_lse = merges_in_place && !alone ? step.attention("block log-sum-exp", now.lse) : no_tensor;
        step.to.attention("attention", now.kernel);
        step.to.computes(AttentionCall{.query = View(kept.query) + now.query_offset,
                                       .key = key,
                                       .value = value,
                                       .output = block_output,
                                       .exponent = block_lse});
        if (round == 0) {
            output = step.attention("attention output, fp32", 2 * work.query);
            step.eager("attention output to fp32", 3 * work.query);
        } else {
            merge(step, now.query);
        }
        step.to.computes(Merge{.sum = output,
                               .exponent = kept.lse,
                               .block = block_output,
                               .block_exponent = block_lse,
                               .rows = now.kernel.query_len,
                               .first_row = shape.kernel.query_len - now.kernel.query_len,
                               .total_rows = shape.kernel.query_len,
                               .heads = shape.kernel.heads,
                               .head_dim = shape.kernel.head_dim,
                               .first = round == 0});
        step.release(block_lse);
        if (!last) {
            step.release(block_output);
            block_output = no_tensor;
            receive(step);
        }
        if (round > 0) step.release(key, value);
        key = next_key;
        value = next_value;
    }
    kept.output = step.attention("attention output", work.query);
    step.eager("attention output from fp32", 3 * work.query);
    step.to.computes(Convert{output, kept.output, work.query.value / work.element, false});
    step.release(block_output, output);
    if (kept.lse == no_tensor) kept.lse = step.attention("log-sum-exp", work.lse);
}

QkvGradients ring_backward(Step& step, Kept& kept, TensorId output_gradient) {
    const Workload& work = step.work;
    const RingShape shape = ring_shape(work);
    const bool alone = shape.degree == 1;
    const AttentionKernel kernel = step.work.recipe.attention_kernel;
    const bool widen = step.traits.fp32_gradients || !alone;  // fp32 dq, dk, dv
    const auto elements = [&](Bytes bytes) { return bytes.value / work.element; };

    // The second half of a query block needs its log-sum-exp in one piece.
    const TensorId half_lse = widen ? step.attention("second half of log-sum-exp", work.lse / 2) : no_tensor;
    if (!alone) {
        step.eager("second half of log-sum-exp", work.lse);
        step.to.computes(SliceExponent{.from = kept.lse,
                                       .to = half_lse,
                                       .rows = shape.kernel.query_len / 2,
                                       .first_row = shape.kernel.query_len / 2,
                                       .total_rows = shape.kernel.query_len,
                                       .heads = shape.kernel.heads});
    }
    QkvGradients result{};
    const TensorId query_block = step.attention("gradient of query", work.query);
    const TensorId key_block = step.attention("gradient of key", work.key);
    const TensorId value_block = step.attention("gradient of value", work.key);

    TensorId key = kept.key;
    TensorId value = kept.value;
    TensorId query_sum = no_tensor;
    KeyValue sums;      // of the block that visits, fp32
    KeyValue received;  // of the block that comes next
    for (std::int64_t round = 0; round < shape.degree; ++round) {
        const bool last = round + 1 == shape.degree;
        const auto [next_key, next_value] = last ? KeyValue{} : pass_on(step, key, value);
        const Round now = round_of(work, shape, round, true);
        const KernelWorkspace need = backward_workspace(kernel, now.query, now.key, now.lse, work.group);
        const TensorId accumulator = step.workspace("attention kernel: dQ accumulator", need.query_accumulator);
        const TensorId key_accumulators =
            step.workspace("attention kernel: dK and dV accumulators", need.key_accumulators);
        const TensorId row_sums = step.workspace("attention kernel: row sums", need.row_sums);
        step.to.attention("attention backward", now.kernel);
        step.to.computes(AttentionCall{.query = View(kept.query) + now.query_offset,
                                       .key = key,
                                       .value = value,
                                       .output = View(kept.output) + now.query_offset,
                                       .exponent = now.whole_query ? kept.lse : half_lse,
                                       .output_gradient = View(output_gradient) + now.query_offset,
                                       .query_gradient = query_block,
                                       .key_gradient = key_block,
                                       .value_gradient = value_block,
                                       .accumulator = accumulator,
                                       .delta = row_sums,
                                       .workspace = key_accumulators,
                                       .workspace_bytes = need.key_accumulators.value});
        step.release(accumulator, key_accumulators, row_sums);

        if (widen && round == 0) {
            query_sum = step.attention("gradient of query, fp32", 2 * work.query);
            sums.key = step.attention("gradient of key, fp32", 2 * work.key);
            sums.value = step.attention("gradient of value, fp32", 2 * work.key);
            step.eager("gradients to fp32", 3 * (work.query + 2 * work.key), 3);
            step.to.computes(Convert{query_block, query_sum, elements(work.query), true});
            step.to.computes(Convert{key_block, sums.key, elements(work.key), true});
            step.to.computes(Convert{value_block, sums.value, elements(work.key), true});
        } else if (widen) {
            step.mixed("add gradient of query", 5 * now.query);
            step.to.computes(AddTo{View(query_sum) + 2 * now.query_offset, query_block, elements(now.query)});
            receive(step);
            std::swap(sums, received);
            step.mixed("add gradients of key and value", 10 * work.key, 2);
            step.to.computes(AddTo{sums.key, key_block, elements(now.key)});
            step.to.computes(AddTo{sums.value, value_block, elements(now.key)});
        }
        if (!last) {
            receive(step);
        }
        if (round > 0) step.release(key, value);
        key = next_key;
        value = next_value;
        if (!alone || step.traits.fp32_gradients) {
            const Bytes wide = 2 * work.key;
            if (round == 0) {
                received.key = step.exchange("received gradient of key, fp32", wide);
                received.value = step.exchange("received gradient of value, fp32", wide);
            }
            send_on(step, alone ? "self-send: dK and dV" : "ring: dK and dV", 2 * wide,
                    {Move{sums.key, received.key, wide.value}, {sums.value, received.value, wide.value}});
        }
    }
    if (!widen) {
        step.release(half_lse, kept.query, kept.key, kept.value, kept.output, kept.lse, output_gradient);
        return {query_block, key_block, value_block};
    }
    receive(step);
    result.query = step.attention("gradient of query", work.query);
    result.key = step.attention("gradient of key", work.key);
    result.value = step.attention("gradient of value", work.key);
    step.eager("gradients from fp32", 3 * (work.query + 2 * work.key), 3);
    step.to.computes(Convert{query_sum, result.query, elements(work.query), false});
    step.to.computes(Convert{received.key, result.key, elements(work.key), false});
    step.to.computes(Convert{received.value, result.value, elements(work.key), false});
    step.release(half_lse, query_block, key_block, value_block, query_sum, sums.key, sums.value, received.key,
                 received.value);
    step.release(kept.query, kept.key, kept.value, kept.output, kept.lse, output_gradient);
    return result;
}

}  // namespace headroom
