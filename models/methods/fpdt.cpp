// SPDX-License-Identifier: Apache-2.0
// FPDT, fully pipelined distributed transformer (arXiv 2408.16978): Ulysses one sequence chunk at a time, chunks of
// q, k, v, out kept on the host. As shipped: Megatron-DeepSpeed megatron/patch/fpdt_layer.py; fpdt_lean.cpp is the
// method alone.
//
//     for chunk i:  q, k, v = all_to_all(x[i] Wqkv);  host <- q, k, v
//         for chunk j <= i:  out = merge(out, attention(q, k[j], v[j]));  prefetch k[j+1], v[j+1]
//         y[i] = all_to_all(out);  host <- out, lse
//     backward: for key chunk i, for query chunk j >= i: dq[j], dk, dv += ...; then the projections of chunk i
#include "models/methods/fpdt.hpp"

namespace headroom {

using namespace fpdt;

namespace {

struct ChunkTensors {
    TensorId query, key, value;
};

/// QKV of one chunk, exchanged: q + 2k bytes remain.
ChunkTensors load_chunk(Step& step, const Chunks& chunks) {
    const Workload& work = step.work;
    const Bytes qkv = chunks.query + 2 * chunks.key;
    const std::int64_t columns = work.model.query_width() + 2 * work.kv_heads * work.model.head_dim;
    const TensorId fused = step.attention("chunk q, k, v, fused", qkv);
    step.to.gemm("QKV projection of a chunk", chunks.rows, columns, work.model.hidden);
    step.eager("bias and slices", 6 * qkv, 4);
    const TensorId slices = step.attention("chunk q, k, v, contiguous", qkv);
    step.release(fused);
    ChunkTensors tensors{};
    const auto exchange = [&](const char* name, Bytes bytes) {
        const TensorId received = gather_sequence(step, name, {}, bytes);
        return received == no_tensor ? step.attention(name, bytes) : received;
    };
    tensors.query = exchange("chunk query, my heads", chunks.query);
    tensors.key = exchange("chunk key, my heads", chunks.key);
    tensors.value = exchange("chunk value, my heads", chunks.key);
    step.release(slices);
    world_barrier(step);
    step.eager("rotary embedding", 3 * (chunks.query + chunks.key), 4);
    return tensors;
}

void merge_chunk(Step& step, const Chunks& chunks) {
    const TensorId wide = step.workspace("merge: block output, fp32", 2 * chunks.query);
    const TensorId difference = step.workspace("merge: difference, fp32", 2 * chunks.query);
    const TensorId product = step.workspace("merge: product, fp32", 2 * chunks.query);
    const TensorId merged = step.workspace("merge: new output, fp32", 2 * chunks.query);
    step.mixed("merge partial attention", 17 * chunks.query, 8);
    step.release(wide, difference, product, merged);
}

/// Chunk i against the keys of chunks 0 to i. Those before i come from the host, one kernel ahead; its own are here.
void attend_to_chunks(Step& step, const Chunks& chunks, std::int64_t i) {
    const bool offload = step.work.recipe.offload.chunks;
    const auto attend = [&](bool diagonal) {
        const TensorId block = step.attention("block output", chunks.query);
        const TensorId block_lse = step.attention("block log-sum-exp", chunks.lse);
        step.to.attention("attention", chunk_kernel(step.work, chunks, diagonal, false));
        merge_chunk(step, chunks);
        step.release(block, block_lse);
    };
    if (!offload) {
        step.to.loop(i, [&] { attend(false); });
        attend(true);
        return;
    }
    if (i > 0) {
        const TensorId key = step.attention("prefetched key", chunks.key);
        const TensorId value = step.attention("prefetched value", chunks.key);
        if (i > 1) from_host(step, "prefetch k, v", 2 * chunks.key);  // chunk 0 was still here for chunk 1
        step.to.loop(i - 1, [&] {
            attend(false);
            step.to.allocate_again(key, "prefetched key", Group::attention, chunks.key);
            step.to.allocate_again(value, "prefetched value", Group::attention, chunks.key);
            from_host(step, "prefetch k, v", 2 * chunks.key);
            settle(step);
            step.release(key, value);
        });
        attend(false);
        settle(step);
        step.release(key, value);
    }
    attend(true);
}

}  // namespace

Kept fpdt_forward(Step& step, bool keep) {
    const Workload& work = step.work;
    if (runs_in_one_chunk(work)) return usp_forward(step, keep);  // nothing is chunked: plain Ulysses
    const Chunks chunks = chunks_of(work);
    const bool offload = work.recipe.offload.chunks;

    Kept kept;
    if (offload) {
        // Every chunk has buffers of its own; freed by the backward of the block.
        kept.key_raw = host_buffer(step, "chunks of normed input, q, k, v, out, lse",
                                   chunks.count * (pinned(chunks.hidden) + 2 * pinned(chunks.query) +
                                                   2 * pinned(chunks.key) + pinned(chunks.lse)));
    } else {
        kept.query = step.attention("chunks of query", work.query);
        kept.key = step.attention("chunks of key", work.key);
        kept.value = step.attention("chunks of value", work.key);
        kept.lse = step.attention("log-sum-exp", work.lse);
        if (keep) kept.output = step.attention("chunks of output", work.query);
    }
    std::vector<TensorId> output_list;
    output_list.reserve(static_cast<std::size_t>(chunks.count));

    TensorId held_query = no_tensor;
    TensorId held_sum = no_tensor;
    TensorId held_output = no_tensor;
    TensorId held_lse = no_tensor;
    TensorId held_key = no_tensor;
    TensorId held_value = no_tensor;
    for (std::int64_t i = 0; i < chunks.count; ++i) {
        step.release(held_query, held_sum, held_output, held_lse);
        ChunkTensors own = load_chunk(step, chunks);
        step.release(held_key, held_value);
        held_query = own.query;
        if (offload) {
            to_host(step, "offload normed input", chunks.hidden);
            to_host(step, "offload q, k, v", chunks.query + 2 * chunks.key);
        }
        held_sum = step.attention("chunk output, fp32", 2 * chunks.query);
        held_lse = step.attention("chunk log-sum-exp", chunks.lse);
        attend_to_chunks(step, chunks, i);
        held_key = own.key;
        held_value = own.value;
        held_output = step.attention("chunk output", chunks.query);
        step.eager("chunk output from fp32", 3 * chunks.query);
        const TensorId mine = scatter_sequence(step, "chunk output, my tokens", {}, chunks.query, false);
        if (offload) to_host(step, "offload out, lse", chunks.query + chunks.lse);
        output_list.push_back(mine != no_tensor ? mine : step.attention("chunk output, my tokens", chunks.query));
    }
    // Backward starts with chunk 0, which is fetched back now.
    if (offload) {
        kept.query = step.attention("query of chunk 0", chunks.query);
        kept.output = step.attention("output of chunk 0", chunks.query);
        kept.key = step.attention("key of chunk 0", chunks.key);
        kept.value = step.attention("value of chunk 0", chunks.key);
        kept.lse = step.attention("log-sum-exp of chunk 0", chunks.lse);
        from_host(step, "fetch chunk 0", 2 * chunks.query + 2 * chunks.key);
        settle(step);
    }
    const TensorId outputs = step.attention("attention output, my tokens", work.query);
    step.copy("concatenate chunk outputs", 2 * work.query);
    for (const TensorId tensor : output_list) step.release(tensor);
    step.release(held_query, held_sum, held_output, held_lse, held_key, held_value);
    kept.projected = outputs;
    if (!keep) {
        step.release(kept.query, kept.key, kept.value, kept.output, kept.lse);
        if (kept.key_raw != no_tensor) step.to.release(kept.key_raw);
    }
    kept.result = output_projection(step, kept.projected, 1);
    if (!keep) step.release(kept.projected);
    return kept;
}

}  // namespace headroom
