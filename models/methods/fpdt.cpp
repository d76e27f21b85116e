// SPDX-License-Identifier: Apache-2.0
// FPDT, fully pipelined distributed transformer (arXiv 2408.16978): Ulysses one sequence chunk at a time, chunks of
// q, k, v, out kept on the host. Method: Megatron-DeepSpeed megatron/patch/fpdt_layer.py.
//
//     for chunk i:  q, k, v = all_to_all(x[i] Wqkv);  host <- q, k, v
//         for chunk j <= i:  out = merge(out, attention(q, k[j], v[j]));  prefetch k[j+1], v[j+1]
//         y[i] = all_to_all(out);  host <- out, lse
//     backward: for key chunk i, for query chunk j >= i: dq[j], dk, dv += ...; then the projections of chunk i
#include "models/methods/method.hpp"

namespace headroom {
namespace {

struct Chunks {
    std::int64_t count;  ///< n = S/Cs
    std::int64_t rows;   ///< tokens of a chunk on a rank
    Bytes query;         ///< q
    Bytes key;           ///< k
    Bytes hidden;        ///< xc
    Bytes lse;           ///< of one chunk
};

Chunks chunks_of(const Workload& work) {
    const std::int64_t count = work.global_tokens() / work.recipe.chunk_tokens.value;
    return {count, work.tokens / count, work.query / count, work.key / count, work.hidden / count, work.lse / count};
}

Attention chunk_kernel(const Workload& work, const Chunks& chunks, bool diagonal, bool backward) {
    const std::int64_t length = chunks.rows * work.recipe.ulysses / work.recipe.batch;
    return {.query_len = length,
            .key_len = length,
            .heads = static_cast<std::int32_t>(work.model.heads / work.recipe.ulysses),
            .kv_heads = static_cast<std::int32_t>(work.kv_heads / work.recipe.ulysses),
            .head_dim = static_cast<std::int32_t>(work.model.head_dim),
            .batch = static_cast<std::int32_t>(work.recipe.batch),
            .causal = diagonal,
            .backward = backward};
}

void to_host(Step& step, const char* name, Bytes bytes) {
    step.to.wait(Stream::device_to_host, step.to.record(Stream::compute));
    step.to.copy(name, Stream::device_to_host, {.to_host = true, .pinned = true, .fresh = false, .bytes = bytes.value});
}

void from_host(Step& step, const char* name, Bytes bytes) {
    if (bytes.value <= 0) return;
    step.to.copy(name, Stream::host_to_device,
                 {.to_host = false, .pinned = true, .fresh = false, .bytes = bytes.value});
}

/// The shipped code synchronises the host with the compute stream after every kernel, so a prefetch is one deep.
void settle(Step& step) {
    step.to.wait(Stream::compute, step.to.record(Stream::host_to_device));
    if (step.traits.megatron) step.to.host_wait("synchronise", Stream::compute);
}

void world_barrier(Step& step) {
    if (!step.traits.megatron) return;
    step.to.collective("world barrier", Stream::ulysses, CollectiveKind::barrier, CommGroup::context, {0}, true);
    step.to.host_wait("world barrier", Stream::compute);
}

/// PyTorch's pinned allocator hands out powers of two.
Bytes pinned(Bytes bytes) { return {next_power_of_two(bytes.value)}; }

TensorId host_buffer(Step& step, const char* name, Bytes bytes) {
    return step.to.allocate(name, Group::attention, bytes, Place::host_pinned);
}

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
    const TensorId slices = step.traits.megatron ? step.attention("chunk q, k, v, contiguous", qkv) : no_tensor;
    if (slices != no_tensor) step.release(fused);
    ChunkTensors tensors{};
    const auto exchange = [&](const char* name, Bytes bytes) {
        const TensorId received = gather_sequence(step, name, bytes);
        return received == no_tensor ? step.attention(name, bytes) : received;
    };
    tensors.query = exchange("chunk query, my heads", chunks.query);
    tensors.key = exchange("chunk key, my heads", chunks.key);
    tensors.value = exchange("chunk value, my heads", chunks.key);
    step.release(slices != no_tensor ? slices : fused);
    world_barrier(step);
    step.eager("rotary embedding", 3 * (chunks.query + chunks.key), 4);
    return tensors;
}

void merge_chunk(Step& step, const Chunks& chunks) {
    if (!step.traits.megatron) {
        step.eager("merge partial attention", 5 * chunks.query);
        return;
    }
    const TensorId wide = step.workspace("merge: block output, fp32", 2 * chunks.query);
    const TensorId difference = step.workspace("merge: difference, fp32", 2 * chunks.query);
    const TensorId product = step.workspace("merge: product, fp32", 2 * chunks.query);
    const TensorId merged = step.workspace("merge: new output, fp32", 2 * chunks.query);
    step.mixed("merge partial attention", 17 * chunks.query, 8);
    step.release(wide, difference, product, merged);
}

bool runs_in_one_chunk(const Workload& work) {
    return !work.recipe.offload.chunks && work.recipe.chunk_tokens == work.recipe.context;
}

}  // namespace

Kept fpdt_forward(Step& step, bool keep) {
    const Workload& work = step.work;
    if (runs_in_one_chunk(work)) return usp_forward(step, keep);  // nothing is chunked: plain Ulysses
    const Chunks chunks = chunks_of(work);
    const bool offload = work.recipe.offload.chunks;
    const bool lists = step.traits.megatron;

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
    TensorId outputs = no_tensor;
    if (!lists) outputs = step.attention("attention output, my tokens", work.query);
    std::vector<TensorId> output_list;
    if (lists) output_list.reserve(static_cast<std::size_t>(chunks.count));

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
        TensorId key = own.key;  // of chunk j
        TensorId value = own.value;
        if (offload && i > 0) {
            key = step.attention("prefetched key", chunks.key);
            value = step.attention("prefetched value", chunks.key);
            if (i > 1) from_host(step, "prefetch k, v", 2 * chunks.key);
        }
        for (std::int64_t j = 0; j <= i; ++j) {
            const TensorId block = step.attention("block output", chunks.query);
            const TensorId block_lse = step.attention("block log-sum-exp", chunks.lse);
            step.to.attention("attention", chunk_kernel(work, chunks, j == i, false));
            merge_chunk(step, chunks);
            step.release(block, block_lse);
            if (j == i || !offload) continue;
            const bool next_is_own = j + 1 == i;
            TensorId next_key = own.key;
            TensorId next_value = own.value;
            if (!next_is_own) {
                next_key = step.attention("prefetched key", chunks.key);
                next_value = step.attention("prefetched value", chunks.key);
                from_host(step, "prefetch k, v", 2 * chunks.key);
            }
            settle(step);
            step.release(key, value);
            key = next_key;
            value = next_value;
        }
        held_key = own.key;
        held_value = own.value;
        held_output = step.attention("chunk output", chunks.query);
        step.eager("chunk output from fp32", 3 * chunks.query);
        const TensorId mine = scatter_sequence(step, "chunk output, my tokens", chunks.query, false);
        if (offload) to_host(step, "offload out, lse", chunks.query + chunks.lse);
        if (lists) {
            output_list.push_back(mine != no_tensor ? mine : step.attention("chunk output, my tokens", chunks.query));
        } else {
            step.copy("write chunk into output", 2 * chunks.query);
            step.release(mine);
        }
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
    if (lists) {
        outputs = step.attention("attention output, my tokens", work.query);
        step.copy("concatenate chunk outputs", 2 * work.query);
        for (const TensorId tensor : output_list) step.release(tensor);
    }
    step.release(held_query, held_sum, held_output, held_lse, held_key, held_value);
    kept.projected = outputs;
    if (!keep) {
        step.release(kept.query, kept.key, kept.value, kept.output, kept.lse);
        if (kept.key_raw != no_tensor) step.to.release(kept.key_raw);
    }
    kept.result = output_projection(step);
    if (!keep) step.release(kept.projected);
    return kept;
}

TensorId fpdt_backward(Step& step, Kept& kept) {
    const Workload& work = step.work;
    if (runs_in_one_chunk(work)) return usp_backward(step, kept);
    const Chunks chunks = chunks_of(work);
    const bool offload = work.recipe.offload.chunks;
    const bool lists = step.traits.megatron;
    const std::int64_t columns = work.model.query_width() + 2 * work.kv_heads * work.model.head_dim;
    const AttentionKernel kernel = work.recipe.attention_kernel;

    const TensorId output_gradient = output_projection_backward(step, kept.projected);
    // One tensor per chunk in the shipped code; together as large as the normed input.
    const TensorId input_gradients = step.attention("gradients of normed input, by chunk", work.hidden);
    TensorId host = no_tensor;
    TensorId sums = no_tensor;
    if (offload) {
        host = host_buffer(step, "chunks of dq, fp32, and gradient of out",
                           chunks.count * (pinned(2 * chunks.query) + pinned(chunks.query)));
        if (lists && chunks.count > 1) {
            step.to.host_work("zero pinned dq buffers", HostWork::Kind::zero_fill,
                              2 * chunks.query.value * (chunks.count - 1));
        }
    } else {
        sums = step.attention("gradients of query, fp32", 2 * work.query);
    }
    // {q, out, dout, dq fp32} of a query chunk: 5q, once in use and once on its way. Chunk 0 came with forward (2q).
    TensorId current = offload ? step.attention("gradients of chunk 0", 3 * chunks.query) : no_tensor;
    TensorId current_rest = offload ? kept.query : no_tensor;
    TensorId current_output = offload ? kept.output : no_tensor;
    TensorId key = offload ? kept.key : no_tensor;
    TensorId value = offload ? kept.value : no_tensor;
    std::int64_t pair = 0;
    const std::int64_t pairs = chunks.count * (chunks.count + 1) / 2;
    for (std::int64_t i = 0; i < chunks.count; ++i) {
        const TensorId key_sums = step.attention("gradients of key and value, fp32", 4 * chunks.key);
        TensorId finished = no_tensor;  // dq of chunk i is complete after its diagonal block
        for (std::int64_t j = i; j < chunks.count; ++j, ++pair) {
            if (i == 0) {
                const TensorId received = gather_sequence(step, "gradient of output, my heads", chunks.query);
                if (offload) to_host(step, "offload gradient of output", chunks.query);
                step.release(received);
            }
            const TensorId blocks = step.attention("block gradients of q, k, v", chunks.query + 2 * chunks.key);
            const KernelWorkspace need = backward_workspace(kernel, chunks.query, chunks.key, chunks.lse, work.group);
            TensorId next = no_tensor;
            if (offload && pair + 1 < pairs) {
                next = step.attention("prefetched q, out, dout, dq of a chunk", 5 * chunks.query);
                if (pair > 0) from_host(step, "prefetch q, out, dout, dq", (i == 0 ? 4 : 5) * chunks.query);
            }
            const TensorId accumulator = step.workspace("attention kernel: dQ accumulator", need.query_accumulator);
            step.to.attention("attention backward", chunk_kernel(work, chunks, j == i, true));
            step.release(accumulator);
            step.mixed("add gradients", 5 * chunks.query + 10 * chunks.key, 3);
            step.release(blocks);
            if (offload) {
                to_host(step, "offload dq", 2 * chunks.query);
                settle(step);
                if (j == i) {
                    finished = current;
                } else {
                    step.release(current);
                }
                if (j != i) step.release(current_rest, current_output);
                if (j == i) {
                    // The diagonal chunk's tensors stay until its projections are done.
                    step.release(current_rest, current_output);
                    current_rest = current_output = no_tensor;
                }
                current = next;
                current_rest = current_output = no_tensor;
            }
        }
        // Projections of chunk i: dq, dk, dv back through rotary, all-to-all and the QKV weights.
        const TensorId turned = lists ? step.workspace("rotary backward, fp32", 2 * chunks.query) : no_tensor;
        const TensorId narrow = step.attention("chunk gradient of query", chunks.query);
        step.eager("rotary embedding backward", 6 * (chunks.query + chunks.key), 4);
        const TensorId mine = scatter_sequence(step, "chunk gradient of query, my tokens", chunks.query, false);
        const TensorId key_mine = scatter_sequence(step, "chunk gradient of key, my tokens", chunks.key, false);
        const TensorId value_mine = scatter_sequence(step, "chunk gradient of value, my tokens", chunks.key, false);
        step.release(key_mine, value_mine);
        world_barrier(step);
        const TensorId fused = step.attention("chunk gradients of q, k, v, fused", chunks.query + 2 * chunks.key);
        const TensorId normed = offload ? step.attention("normed input of a chunk", chunks.hidden) : no_tensor;
        if (offload) from_host(step, "fetch normed input", chunks.hidden);
        const TensorId piece = lists ? step.attention("gradient of normed input of a chunk", chunks.hidden) : no_tensor;
        step.to.gemm("QKV projection of a chunk, input gradient", chunks.rows, work.model.hidden, columns);
        step.to.gemm("QKV projection of a chunk, weight gradient", columns, work.model.hidden, chunks.rows);
        step.release(turned, narrow, mine, fused, normed, piece, finished, key_sums);
        if (i + 1 == chunks.count) {
            // Chunks add to it from the first one on, but never while the chunk buffers stand at their peak (measured).
            step.weight_gradient("gradient of wq, wk, wv", work.parameters.query + work.parameters.key_value);
        }
        if (offload) {
            step.release(key, value);
            key = value = no_tensor;
            if (i + 1 < chunks.count) {
                key = step.attention("key of a chunk", chunks.key);
                value = step.attention("value of a chunk", chunks.key);
                from_host(step, "fetch k, v", 2 * chunks.key);
                settle(step);
                if (i + 2 <= chunks.count) world_barrier(step);
            }
        }
    }
    step.release(current);
    if (!offload) step.release(kept.query, kept.key, kept.value, kept.output);
    step.release(kept.lse, sums);
    if (host != no_tensor) {
        to_host(step, "offload the last dq", 2 * chunks.query);
        step.release(host, kept.key_raw);
    }
    if (!lists) {
        step.release(output_gradient);
        return input_gradients;
    }
    const TensorId leftovers = step.attention("tensors of the last chunk", 4 * chunks.query + chunks.hidden);
    const TensorId joined = step.attention("gradient of normed input", work.hidden);
    step.copy("concatenate chunk gradients", 2 * work.hidden);
    step.release(leftovers, input_gradients, output_gradient);
    return joined;
}

}  // namespace headroom
