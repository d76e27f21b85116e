// SPDX-License-Identifier: Apache-2.0
// PyTorch's own context parallel (torch/distributed/tensor/experimental/_attention.py): K and V moved by one all-gather
// or by an all-to-all permutation per step, merged in fp32. The Untied-Ulysses fork repeats them to all query heads
// first; with a kernel that takes grouped heads (torchtitan, accelerate) and in the lean form they travel as they are.
//
//     q, k, v = rotary(x Wq, x Wk), x Wv;  fork: k, v = repeat(k), repeat(v)
//     for each block of k, v:  out = merge(out, attention(q, block))
//     backward: the same blocks again, dK and dV travel as one fp32 buffer
#include "models/methods/method.hpp"

namespace headroom {
namespace {

bool repeats(const Step& step) {
    return step.traits.repeats_kv_heads && step.work.model.kv_heads < step.work.model.heads;
}

/// K or V as they travel.
Bytes travelling_bytes(const Step& step) { return repeats(step) ? step.work.query : step.work.key; }

Attention block_kernel(const Step& step, std::int64_t round, bool backward) {
    const Workload& work = step.work;
    Attention kernel{.query_len = work.ring_tokens(),
                     .key_len = work.ring_tokens(),
                     .heads = static_cast<std::int32_t>(work.model.heads),
                     .kv_heads = static_cast<std::int32_t>(repeats(step) ? work.model.heads : work.model.kv_heads),
                     .head_dim = static_cast<std::int32_t>(work.model.head_dim),
                     .batch = static_cast<std::int32_t>(work.recipe.batch),
                     .causal = round == 0,
                     .backward = backward};
    if (round > 0) (work.role == RingRole::later ? kernel.key_len : kernel.query_len) /= 2;
    return kernel;
}

/// K and V of the other ranks: everything at once, or one rank's at a time with the next on its way.
class KeyValueBlocks {
 public:
    KeyValueBlocks(Step& step) : step_(step), gathers_(step.work.recipe.rotation == Rotation::all_gather) {}

    void start_round(std::int64_t round) {
        const std::int64_t degree = step_.work.recipe.ring;
        const Bytes pair = 2 * travelling_bytes(step_);
        if (round > 0 && pending_) step_.to.wait(Stream::compute, step_.to.record(Stream::ring));
        if (round > 0 && !gathers_) {
            step_.release(current_);
            current_ = next_;
            next_ = no_tensor;
        }
        pending_ = gathers_ ? round == 0 && degree > 1 : round + 1 < degree;
        if (gathers_ && round > 0 && round + 1 < degree) {
            // Concatenated before every exchange, though only the first one gathers.
            step_.release(step_.exchange("concatenated K and V", pair));
            step_.copy("concatenate K and V", 2 * pair);
        }
        if (!pending_) return;
        const TensorId send = step_.exchange("concatenated K and V", pair);
        step_.copy("concatenate K and V", 2 * pair);
        step_.to.wait(Stream::ring, step_.to.record(Stream::compute));
        next_ = step_.exchange("K and V of other ranks", gathers_ ? degree * pair : pair);
        if (gathers_) {
            step_.to.collective("all-gather of K and V", Stream::ring, CollectiveKind::all_gather, CommGroup::ring,
                                degree * pair, false);
        } else {
            step_.to.collective("ring: K and V", Stream::ring, CollectiveKind::send_recv, CommGroup::ring, pair, false);
        }
        step_.release(send);
    }

    void finish() { step_.release(current_, next_); }

 private:
    Step& step_;
    bool gathers_;
    bool pending_ = false;
    TensorId current_ = no_tensor;
    TensorId next_ = no_tensor;
};

/// Out-of-place fp32 update of the running output; a partial update (second half of the queries only) concatenates the
/// accumulator anew.
void merge_block(Step& step, std::int64_t round) {
    const Bytes query = step.work.query;
    const bool whole = round == 0 || step.work.role == RingRole::later;
    if (!step.traits.eager_merge) {
        const TensorId block = step.attention("block output", whole ? query : query / 2);
        step.eager("merge partial attention", 5 * (whole ? query : query / 2));
        step.release(block);
        return;
    }
    const Bytes part = whole ? query : query / 2;
    const TensorId block = step.attention("block output", part);
    step.to.attention("attention", block_kernel(step, round, false));
    if (round == 0) {
        step.eager("block output to fp32", 3 * query);
        step.release(block);
        return;
    }
    const TensorId wide = step.workspace("merge: block output, fp32", 2 * part);
    const TensorId product = step.workspace("merge: product, fp32", 2 * part);
    TensorId half = no_tensor;
    if (!whole) half = step.workspace("merge: half of the queries", query / 2);
    const TensorId merged = step.workspace("merge: new output, fp32", 2 * query);
    step.mixed("merge partial attention", 19 * query, 9);
    step.release(block, wide, product, half, merged);
}

}  // namespace

Kept native_forward(Step& step, bool keep) {
    const Workload& work = step.work;
    const std::int64_t kv_width = work.model.kv_width();
    Kept kept;
    kept.query = step.attention("query", work.query);
    TensorId key = step.attention("key", work.key);
    const TensorId value = step.attention("value", work.key);
    project(step, "query projection", projection(step, work.model.query_width(), {}), {});
    project(step, "key projection", projection(step, kv_width, {}), {});
    project(step, "value projection", projection(step, kv_width, {}), {});
    rotate(step, kept.query, key);
    kept.key = key;
    kept.value = value;
    if (repeats(step)) {
        kept.key = step.attention("key, repeated to all heads", work.query);
        kept.value = step.attention("value, repeated to all heads", work.query);
        step.copy("repeat K and V", 2 * (work.query + work.key), 2);
        step.release(key, value);
    }

    const TensorId output = step.attention("attention output, fp32", 2 * work.query);
    KeyValueBlocks blocks(step);
    for (std::int64_t round = 0; round < work.recipe.ring; ++round) {
        blocks.start_round(round);
        if (!step.traits.eager_merge) step.to.attention("attention", block_kernel(step, round, false));
        merge_block(step, round);
    }
    blocks.finish();
    kept.output = step.attention("attention output", work.query);
    kept.lse = step.attention("log-sum-exp", work.lse);
    step.eager("attention output from fp32", 3 * work.query);
    step.release(output);
    if (!keep) step.release(kept.query, kept.key, kept.value, kept.lse);
    kept.projected = step.attention("attention output, tokens first", work.query);
    step.transpose("transpose attention output", 2 * work.query);
    if (!keep) step.release(kept.output);
    kept.result = output_projection(step, kept.projected, 1);
    if (!keep) step.release(kept.projected);
    return kept;
}

TensorId native_backward(Step& step, Kept& kept) {
    const Workload& work = step.work;
    const Bytes query = work.query;
    const Bytes key = travelling_bytes(step);
    const bool eager = step.traits.eager_merge;
    const TensorId output_gradient = output_projection_backward(step, kept.projected, 1, true);
    const TensorId sums = step.attention("gradients of query, key, value, fp32", 2 * query + 4 * key);
    TensorId contiguous = no_tensor;
    TensorId lse_copy = no_tensor;
    if (eager) {
        contiguous = step.attention("contiguous K and V", 2 * key);
        lse_copy = step.attention("contiguous log-sum-exp", work.lse);
        step.transpose("contiguous K and V", 4 * key);
    }
    const TensorId travelling = step.exchange("travelling dK and dV, fp32", 4 * key);
    const TensorId travelling_copy = step.exchange("concatenated dK and dV, fp32", 4 * key);

    KeyValueBlocks blocks(step);
    for (std::int64_t round = 0; round < work.recipe.ring; ++round) {
        blocks.start_round(round);
        const bool whole = round == 0 || work.role == RingRole::later;
        const Bytes part = whole ? query : query / 2;
        const TensorId query_block = step.attention("block gradient of query", part);
        const TensorId key_blocks = step.attention("block gradients of key and value", 2 * key);
        const KernelWorkspace need = backward_workspace(work.recipe.attention_kernel, part, key, work.lse,
                                                        repeats(step) ? 1 : work.model.group());
        const TensorId accumulator = step.workspace("attention kernel: dQ accumulator", need.query_accumulator);
        const TensorId key_accumulators =
            step.workspace("attention kernel: dK and dV accumulators", need.key_accumulators);
        step.to.attention("attention backward", block_kernel(step, round, true));
        step.release(accumulator, key_accumulators);
        if (eager) {
            const TensorId updated = step.workspace("concatenated gradients, fp32", 4 * key);
            step.mixed("add gradients", 9 * query + 20 * key, 9);
            step.release(updated);
        } else {
            step.eager("add gradients", 5 * query + 10 * key, 3);
        }
        step.release(query_block, key_blocks);
        if (round > 0) step.to.wait(Stream::compute, step.to.record(Stream::ring));
        step.to.wait(Stream::ring, step.to.record(Stream::compute));
        step.to.collective("ring: dK and dV", Stream::ring, CollectiveKind::send_recv, CommGroup::ring, 4 * key, false);
    }
    step.to.wait(Stream::compute, step.to.record(Stream::ring));
    blocks.finish();
    step.release(travelling, travelling_copy, contiguous, lse_copy);
    step.release(kept.key, kept.value, kept.output, kept.lse, output_gradient);

    TensorId query_gradient = step.attention("gradient of query", query);
    TensorId key_gradient = step.attention("gradient of key", work.key);
    const TensorId value_gradient = step.attention("gradient of value", work.key);
    step.eager("narrow gradients, sum repeated heads", 3 * query + 6 * key + 4 * work.key, 4);
    step.release(sums, kept.query);
    rotate_backward(step, query_gradient, key_gradient);
    const TensorId input_gradient = step.attention("gradient of normed input", work.hidden);
    step.weight_gradient("gradient of wq", work.parameters.query);
    project_backward(step, "query projection, input gradient", projection(step, work.model.query_width(), {}), {}, {},
                     false, {});
    step.weight_gradient("gradient of wk and wv", work.parameters.key_value);
    const TensorId other = step.attention("gradient of normed input, from key and value", 2 * work.hidden);
    project_backward(step, "key projection, input gradient", projection(step, work.model.kv_width(), {}), {}, {}, false,
                     {});
    project_backward(step, "value projection, input gradient", projection(step, work.model.kv_width(), {}), {}, {},
                     false, {});
    step.eager("add input gradients", 6 * work.hidden, 2);
    step.release(other, query_gradient, key_gradient, value_gradient);
    return input_gradient;
}

}  // namespace headroom
