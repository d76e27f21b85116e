// SPDX-License-Identifier: Apache-2.0
// Zig-zag ring attention: K and V travel, every rank meets every block. Methods: section 2 of the accuracy page's
// sources (long-context-attention ring/zigzag_ring_flash_attn.py).
//
//     for each step: send k, v on; out, lse = merge(out, lse, attend(q, k, v)); k, v = received
//
// After the first step a rank attends either with its whole query to the first half of a block that lies before it, or
// with the second half of its query to a whole later block. Ring rank 0 only ever meets later blocks.
#include "models/methods/method.hpp"

namespace headroom {
namespace {

struct RingShape {
    std::int64_t degree;
    bool whole_query;  ///< this rank's steps after the first use the whole query and half of the keys
    Attention kernel;  ///< of the first step
};

RingShape ring_shape(const Workload& work) {
    RingShape shape{};
    shape.degree = work.recipe.ring;
    shape.whole_query = work.role == RingRole::later;
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

Attention later_kernel(const RingShape& shape, bool backward) {
    Attention kernel = shape.kernel;
    kernel.causal = false;
    kernel.backward = backward;
    (shape.whole_query ? kernel.key_len : kernel.query_len) /= 2;
    return kernel;
}

/// Passes tensors to the next rank beside the kernels that follow.
void send_on(Step& step, const char* name, Bytes message) {
    step.to.wait(Stream::ring, step.to.record(Stream::compute));
    step.to.collective(name, Stream::ring, CollectiveKind::send_recv, CommGroup::ring, message, false);
}

struct KeyValue {
    TensorId key = no_tensor, value = no_tensor;
};

/// Sends the current K and V on, and makes room for those of the rank before.
KeyValue pass_on(Step& step) {
    const Bytes bytes = step.work.key;
    const KeyValue next{step.exchange("next key", bytes), step.exchange("next value", bytes)};
    send_on(step, "ring: K and V", 2 * bytes);
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
        return;
    }

    TensorId key = kept.key;
    TensorId value = kept.value;
    TensorId output = no_tensor;  // fp32
    TensorId block_output = no_tensor;
    if (alone) kept.lse = step.attention("log-sum-exp", work.lse);
    for (std::int64_t round = 0; round < shape.degree; ++round) {
        const bool last = round + 1 == shape.degree;
        const auto [next_key, next_value] = last ? KeyValue{} : pass_on(step);
        const Bytes block = round == 0 || shape.whole_query ? work.query : work.query / 2;
        block_output = step.attention("block output", block);
        step.to.attention("attention", round == 0 ? shape.kernel : later_kernel(shape, false));
        if (round == 0) {
            output = step.attention("attention output, fp32", 2 * work.query);
            step.eager("attention output to fp32", 3 * work.query);
        } else {
            merge(step, block);
        }
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
    step.release(block_output, output);
    if (!alone) kept.lse = step.attention("log-sum-exp", work.lse);
}

QkvGradients ring_backward(Step& step, Kept& kept, TensorId output_gradient) {
    const Workload& work = step.work;
    const RingShape shape = ring_shape(work);
    const bool alone = shape.degree == 1;
    const AttentionKernel kernel = step.work.recipe.attention_kernel;
    const bool widen = step.traits.fp32_gradients || !alone;  // fp32 dq, dk, dv

    const TensorId half_lse =
        step.traits.fp32_gradients ? step.attention("second half of log-sum-exp", work.lse / 2) : no_tensor;
    QkvGradients result{};
    const TensorId query_block = step.attention("gradient of query", work.query);
    const TensorId key_block = step.attention("gradient of key", work.key);
    const TensorId value_block = step.attention("gradient of value", work.key);

    TensorId key = kept.key;
    TensorId value = kept.value;
    TensorId query_sum = no_tensor;
    TensorId key_sum = no_tensor;
    TensorId value_sum = no_tensor;
    TensorId key_received = no_tensor;
    TensorId value_received = no_tensor;
    for (std::int64_t round = 0; round < shape.degree; ++round) {
        const bool last = round + 1 == shape.degree;
        const auto [next_key, next_value] = last ? KeyValue{} : pass_on(step);
        const bool whole_query = round == 0 || shape.whole_query;
        const bool whole_key = round == 0 || !shape.whole_query;
        const KernelWorkspace need =
            backward_workspace(kernel, whole_query ? work.query : work.query / 2, whole_key ? work.key : work.key / 2,
                               whole_query ? work.lse : work.lse / 2, work.group);
        const TensorId accumulator = step.workspace("attention kernel: dQ accumulator", need.query_accumulator);
        const TensorId key_accumulators =
            step.workspace("attention kernel: dK and dV accumulators", need.key_accumulators);
        const TensorId row_sums = step.workspace("attention kernel: row sums", need.row_sums);
        Attention launch = round == 0 ? shape.kernel : later_kernel(shape, true);
        launch.backward = true;
        step.to.attention("attention backward", launch);
        step.release(accumulator, key_accumulators, row_sums);

        if (widen && round == 0) {
            query_sum = step.attention("gradient of query, fp32", 2 * work.query);
            key_sum = step.attention("gradient of key, fp32", 2 * work.key);
            value_sum = step.attention("gradient of value, fp32", 2 * work.key);
            step.eager("gradients to fp32", 3 * (work.query + 2 * work.key), 3);
        } else if (widen) {
            step.mixed("add gradients", 5 * (whole_query ? work.query : work.query / 2) + 10 * work.key, 3);
            receive(step);
        }
        if (!last) {
            receive(step);
        }
        if (round > 0) step.release(key, value);
        key = next_key;
        value = next_value;
        if (!alone || step.traits.fp32_gradients) {
            if (round == 0) {
                key_received = step.exchange("received gradient of key, fp32", 2 * work.key);
                value_received = step.exchange("received gradient of value, fp32", 2 * work.key);
            }
            send_on(step, alone ? "self-send: dK and dV" : "ring: dK and dV", 4 * work.key);
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
    step.release(half_lse, query_block, key_block, value_block, query_sum, key_sum, value_sum, key_received,
                 value_received);
    step.release(kept.query, kept.key, kept.value, kept.output, kept.lse, output_gradient);
    return result;
}

}  // namespace headroom
