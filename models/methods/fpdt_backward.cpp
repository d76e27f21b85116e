// SPDX-License-Identifier: Apache-2.0
// FPDT backward: for key chunk i, for query chunk j >= i: dq[j], dk, dv += ...; then the projections of chunk i. Of the
// query chunks {q, out, dout, dq in fp32} (5q bytes) one is in use and one on its way; the others wait on the host.
#include "models/methods/fpdt.hpp"

namespace headroom {

using namespace fpdt;

namespace {

struct Backward {
    Step& step;
    Chunks chunks;
    bool offload;
    TensorId query_chunk;  ///< id of the query chunks on the device
};

/// The gradient of one chunk of the output goes to the heads' owners, and waits on the host for later key chunks.
void receive_output_gradient(const Backward& run) {
    const TensorId received = gather_sequence(run.step, "gradient of output, my heads", {}, run.chunks.query);
    if (run.offload) to_host(run.step, "offload gradient of output", run.chunks.query);
    run.step.release(received);
}

void fetch_next(const Backward& run, bool with_output_gradient) {
    run.step.to.allocate_again(run.query_chunk, "q, out, dout, dq of a chunk", Group::attention, 5 * run.chunks.query);
    from_host(run.step, "prefetch q, out, dout, dq", (with_output_gradient ? 5 : 4) * run.chunks.query);
}

/// dq[j], dk, dv += gradients of one pair of chunks. `fetch` starts on the next query chunk beside the kernel.
template <class Fetch>
void accumulate(const Backward& run, bool diagonal, Fetch fetch) {
    Step& step = run.step;
    const Chunks& chunks = run.chunks;
    const TensorId blocks = step.attention("block gradients of q, k, v", chunks.query + 2 * chunks.key);
    fetch();
    const KernelWorkspace need =
        backward_workspace(step.work.recipe.attention_kernel, chunks.query, chunks.key, chunks.lse, step.work.group);
    const TensorId accumulator = step.workspace("attention kernel: dQ accumulator", need.query_accumulator);
    step.to.attention("attention backward", chunk_kernel(step.work, chunks, diagonal, true));
    step.release(accumulator);
    step.mixed("add gradients", 5 * chunks.query + 10 * chunks.key, 3);
    step.release(blocks);
    if (!run.offload) return;
    to_host(step, "offload dq", 2 * chunks.query);
    settle(step);
}

/// dq, dk, dv of chunk i back through rotary, all-to-all and the QKV weights.
void project_chunk(const Backward& run) {
    Step& step = run.step;
    const Workload& work = step.work;
    const Chunks& chunks = run.chunks;
    const std::int64_t columns = work.model.query_width() + 2 * work.kv_heads * work.model.head_dim;
    const TensorId turned = step.workspace("rotary backward, fp32", 2 * chunks.query);
    const TensorId narrow = step.attention("chunk gradient of query", chunks.query);
    step.eager("rotary embedding backward", 6 * (chunks.query + chunks.key), 4);
    const TensorId mine = scatter_sequence(step, "chunk gradient of query, my tokens", {}, chunks.query, false);
    const TensorId key_mine = scatter_sequence(step, "chunk gradient of key, my tokens", {}, chunks.key, false);
    const TensorId value_mine = scatter_sequence(step, "chunk gradient of value, my tokens", {}, chunks.key, false);
    step.release(key_mine, value_mine);
    world_barrier(step);
    const TensorId fused = step.attention("chunk gradients of q, k, v, fused", chunks.query + 2 * chunks.key);
    const TensorId normed = run.offload ? step.attention("normed input of a chunk", chunks.hidden) : no_tensor;
    if (run.offload) from_host(step, "fetch normed input", chunks.hidden);
    const TensorId piece = step.attention("gradient of normed input of a chunk", chunks.hidden);
    step.to.gemm("QKV projection of a chunk, input gradient", chunks.rows, work.model.hidden, columns);
    step.to.gemm("QKV projection of a chunk, weight gradient", columns, work.model.hidden, chunks.rows);
    step.release(turned, narrow, mine, fused, normed, piece);
}

}  // namespace

TensorId fpdt_backward(Step& step, Kept& kept) {
    const Workload& work = step.work;
    if (runs_in_one_chunk(work)) return usp_backward(step, kept);
    const Chunks chunks = chunks_of(work);
    const bool offload = work.recipe.offload.chunks;
    const Backward run{step, chunks, offload, step.to.reserve()};

    const TensorId output_gradient = output_projection_backward(step, kept.projected, 1, true);
    // One tensor per chunk in the shipped code; together as large as the normed input.
    const TensorId input_gradients = step.attention("gradients of normed input, by chunk", work.hidden);
    TensorId host = no_tensor;
    TensorId sums = no_tensor;
    TensorId first = no_tensor;  // of chunk 0, whose q and out came with forward
    if (offload) {
        host = host_buffer(step, "chunks of dq, fp32, and gradient of out",
                           chunks.count * (pinned(2 * chunks.query) + pinned(chunks.query)));
        if (chunks.count > 1) {
            step.to.host_work("zero pinned dq buffers", HostWork::Kind::zero_fill,
                              2 * chunks.query.value * (chunks.count - 1));
        }
        first = step.attention("gradients of chunk 0", 3 * chunks.query);
    } else {
        sums = step.attention("gradients of query, fp32", 2 * work.query);
    }
    TensorId key = offload ? kept.key : no_tensor;
    TensorId value = offload ? kept.value : no_tensor;
    for (std::int64_t i = 0; i < chunks.count; ++i) {
        const bool last = i + 1 == chunks.count;
        const TensorId key_sums = step.attention("gradients of key and value, fp32", 4 * chunks.key);
        // The diagonal first; its query chunk stays until the projections of chunk i are done.
        if (i == 0) receive_output_gradient(run);
        accumulate(run, true, [&] {
            if (!offload || last) return;
            if (i > 0) return fetch_next(run, true);
            // Chunk 1 is still on the device when chunk 0 begins.
            step.to.allocate_again(run.query_chunk, "q, out, dout, dq of a chunk", Group::attention, 5 * chunks.query);
        });
        if (i == 0 && offload) step.release(kept.query, kept.output);
        step.to.loop(chunks.count - 1 - i, [&] {
            if (i == 0) receive_output_gradient(run);
            accumulate(run, false, [&] {
                if (offload) fetch_next(run, i > 0);
            });
            if (offload) step.to.release(run.query_chunk);
        });
        project_chunk(run);
        step.release(i == 0 ? first : (offload ? run.query_chunk : no_tensor), key_sums);
        if (last) {
            // Chunks add to it from the first one on, but never while the chunk buffers stand at their peak (measured).
            step.weight_gradient("gradient of wq, wk, wv", work.parameters.query + work.parameters.key_value);
        }
        if (!offload) continue;
        step.release(key, value);
        key = value = no_tensor;
        if (last) continue;
        key = step.attention("key of a chunk", chunks.key);
        value = step.attention("value of a chunk", chunks.key);
        from_host(step, "fetch k, v", 2 * chunks.key);
        settle(step);
        world_barrier(step);
    }
    if (!offload) step.release(kept.query, kept.key, kept.value, kept.output);
    step.release(kept.lse, sums);
    if (host != no_tensor) {
        to_host(step, "offload the last dq", 2 * chunks.query);
        step.release(host, kept.key_raw);
    }
    const TensorId leftovers = step.attention("tensors of the last chunk", 4 * chunks.query + chunks.hidden);
    const TensorId joined = step.attention("gradient of normed input", work.hidden);
    step.copy("concatenate chunk gradients", 2 * work.hidden);
    step.release(leftovers, input_gradients, output_gradient);
    return joined;
}

}  // namespace headroom
