// SPDX-License-Identifier: Apache-2.0
// FPDT as the paper has it (arXiv 2408.16978), without what the shipped code adds: Ulysses one sequence chunk at a
// time, online softmax over key chunks, chunks on the host with the next one always on its way.
//
//     for chunk i:  q, k, v = all_to_all(x[i] Wqkv);  host <- k, v and what backward needs
//         for chunk j <= i:  prefetch k[j+1], v[j+1];  out = merge(out, attention(q, k[j], v[j]))
//         y[i] = all_to_all(out)
//     backward: for key chunk i, for query chunk j >= i:
//         prefetch query chunk j+1;  dq[j], dk, dv += ...;  host <- dq[j]
//         dx[i], dW += the projections of dq[i], dk, dv
//
// Without offload the chunks stay where they are made, and nothing is copied.
#include <array>

#include "models/methods/fpdt.hpp"

namespace headroom {

using namespace fpdt;

namespace {

/// Places of one chunk in the buffers that forward leaves: host records, or whole tensors on the device. A forward that
/// keeps nothing has only those of k and v.
struct Layout {
    const Workload& work;
    const Chunks& chunks;
    const Kept& kept;
    bool offload;
    bool keep = true;

    Bytes record() const { return chunks.hidden + 2 * chunks.query + 2 * chunks.key + chunks.lse; }
    View part(TensorId tensor, Bytes size, std::int64_t i, Bytes before) const {
        return offload ? View(kept.key_raw) + (i * record().value + before.value) : View(tensor) + i * size.value;
    }
    View query(std::int64_t i) const { return part(kept.query, chunks.query, i, {0}); }
    View output(std::int64_t i) const { return part(kept.output, chunks.query, i, chunks.query); }
    View key(std::int64_t i) const { return part(kept.key, chunks.key, i, 2 * chunks.query); }
    View value(std::int64_t i) const { return part(kept.value, chunks.key, i, 2 * chunks.query + chunks.key); }
    View lse(std::int64_t i) const { return part(kept.lse, chunks.lse, i, 2 * chunks.query + 2 * chunks.key); }
    View input(std::int64_t i) const {  ///< of the normed input; only on the host
        return View(kept.key_raw) + (i * record().value + (2 * chunks.query + 2 * chunks.key + chunks.lse).value);
    }
};

/// Copies to the host after what the compute stream has so far; `stored` is recorded when they are done.
void store(Step& step, const char* name, Bytes bytes, const std::array<Move, 5>& moves, SyncId stored) {
    to_host(step, name, bytes);
    step.to.computes(Transfer{moves});
    step.to.record_again(Stream::device_to_host, stored);
}

/// Copies into tensors just allocated, as soon as their memory is free and the host has the data.
void fetch(Step& step, const char* name, Bytes bytes, const std::array<Move, 5>& moves, SyncId stored, SyncId arrived) {
    step.to.wait(Stream::host_to_device, step.to.record(Stream::compute));
    step.to.wait(Stream::host_to_device, stored);
    from_host(step, name, bytes);
    step.to.computes(Transfer{moves});
    step.to.record_again(Stream::host_to_device, arrived);
}

struct OwnChunk {
    View query, key, value;
    std::array<TensorId, 3> tensors{no_tensor, no_tensor, no_tensor};  ///< those to free
};

std::int64_t kv_columns(const Workload& work) { return work.kv_heads * work.model.head_dim; }

std::array<Projection, 3> projections(const Step& step, const Chunks& chunks, View input) {
    const std::int64_t blocks = step.work.recipe.ulysses;
    const std::int64_t columns = kv_columns(step.work);
    return {Projection{chunks.rows, step.work.model.query_width(), blocks, input, step.operands.query_weight},
            {chunks.rows, columns, blocks, input, step.operands.key_weight},
            {chunks.rows, columns, blocks, input, step.operands.value_weight}};
}

/// q, k, v of chunk i, my heads of all its tokens.
OwnChunk load_chunk(Step& step, const Layout& layout, std::int64_t i) {
    const Workload& work = step.work;
    const Chunks& chunks = layout.chunks;
    const bool alone = work.recipe.ulysses == 1;
    OwnChunk own{layout.query(i), layout.key(i), layout.value(i)};
    const auto give_room = [&] {
        if (layout.offload || !layout.keep) {
            own.query = own.tensors[0] = step.attention("chunk query, my heads", chunks.query);
        }
        if (!layout.offload) return;
        own.key = own.tensors[1] = step.attention("chunk key, my heads", chunks.key);
        own.value = own.tensors[2] = step.attention("chunk value, my heads", chunks.key);
    };
    TensorId fused = no_tensor;
    if (alone) {
        give_room();
    } else {
        fused = step.attention("chunk q, k, v", chunks.query + 2 * chunks.key);
    }
    const View query = alone ? own.query : View(fused);
    const View key = alone ? own.key : View(fused) + chunks.query.value;
    const View value = alone ? own.value : View(fused) + (chunks.query + chunks.key).value;
    const auto of = projections(step, chunks, step.operands.input + i * chunks.hidden.value);
    step.to.gemm("QKV projection of a chunk", chunks.rows, work.model.query_width() + 2 * kv_columns(work),
                 work.model.hidden);
    step.to.computes(forward_product(step, of[0], query));
    step.to.computes(forward_product(step, of[1], key));
    step.to.computes(forward_product(step, of[2], value));
    if (!alone) {
        give_room();
        exchange_into(step, query, own.query, chunks.query);
        exchange_into(step, key, own.key, chunks.key);
        exchange_into(step, value, own.value, chunks.key);
        step.release(fused);
    }
    const std::int64_t tokens = chunks.rows * work.recipe.ulysses;
    step.eager("rotary embedding", 2 * (chunks.query + chunks.key), 2);
    step.to.computes(Rotary{own.query, 1, tokens, work.model.query_width() / work.recipe.ulysses, i * tokens, false});
    step.to.computes(Rotary{own.key, 1, tokens, kv_columns(work) / work.recipe.ulysses, i * tokens, false});
    return own;
}

/// out, lse = merge(out, lse, attention(q, k, v))
void attend(Step& step, const Chunks& chunks, View query, View key, View value, bool diagonal, View sum, View lse,
            bool first) {
    const TensorId block = step.attention("block output", chunks.query);
    const TensorId block_lse = step.attention("block log-sum-exp", chunks.lse);
    const Attention kernel = chunk_kernel(step.work, chunks, diagonal, false);
    step.to.attention("attention", kernel);
    step.to.computes(AttentionCall{.query = query, .key = key, .value = value, .output = block, .exponent = block_lse});
    step.eager("merge partial attention", 5 * chunks.query);
    step.to.computes(Merge{.sum = sum,
                           .exponent = lse,
                           .block = block,
                           .block_exponent = block_lse,
                           .rows = kernel.query_len,
                           .first_row = 0,
                           .total_rows = kernel.query_len,
                           .heads = kernel.heads,
                           .first = first});
    step.release(block, block_lse);
}

/// One id for each chunk where the schedule is to be run; a plan needs only that there is one.
struct Syncs {
    SyncId first;
    bool many;
    Syncs(Step& step, std::int64_t count)
        : first(step.to.reserve_syncs(step.to.describing() ? count : 1)), many(step.to.describing()) {}
    SyncId operator[](std::int64_t i) const { return many ? first + static_cast<SyncId>(i) : first; }
};

/// Chunk i of queries against the chunks of keys before it: from the host one kernel ahead, or where they lie.
void attend_to_earlier(Step& step, const Layout& layout, const Syncs& stored, std::int64_t i, View query, View sum,
                       View lse) {
    const Chunks& chunks = layout.chunks;
    if (i == 0) return;
    if (!layout.offload) {
        step.to.loop(i, [&](std::int64_t j) {
            attend(step, chunks, query, layout.key(j), layout.value(j), false, sum, lse, j == 0);
        });
        return;
    }
    const SyncId arrived = step.to.reserve_syncs(1);
    const auto prefetch = [&](std::int64_t j, TensorId key, TensorId value) {
        fetch(step, "prefetch k, v", 2 * chunks.key,
              {Move{layout.key(j), key, chunks.key.value}, {layout.value(j), value, chunks.key.value}}, stored[j],
              arrived);
    };
    TensorId key = step.attention("prefetched key", chunks.key);
    TensorId value = step.attention("prefetched value", chunks.key);
    prefetch(0, key, value);
    step.to.loop(i - 1, [&](std::int64_t j) {
        step.to.wait(Stream::compute, arrived);
        const TensorId next_key = step.to.renew(key, "prefetched key", Group::attention, chunks.key);
        const TensorId next_value = step.to.renew(value, "prefetched value", Group::attention, chunks.key);
        prefetch(j + 1, next_key, next_value);
        attend(step, chunks, query, key, value, false, sum, lse, j == 0);
        step.release(key, value);
        key = next_key;
        value = next_value;
    });
    step.to.wait(Stream::compute, arrived);
    attend(step, chunks, query, key, value, false, sum, lse, i == 1);
    step.release(key, value);
}

/// What backward needs of one chunk of queries.
struct QueryChunk {
    View query, output, output_gradient, lse;
    View gradient;  ///< dq, fp32
    TensorId tensor = no_tensor;
};

struct Backward {
    Step& step;
    const Layout& layout;
    View output_gradient;  ///< my tokens, by chunk
    TensorId gradients;    ///< by chunk {gradient of out, dq}: host records, or a whole tensor for each
    TensorId query_sums;
    TensorId chunk_id;
    SyncId arrived;
    Syncs stored;  ///< gradients of a chunk on the host

    Bytes chunk_bytes() const { return 5 * layout.chunks.query + layout.chunks.lse; }
    View host_output_gradient(std::int64_t j) const { return View(gradients) + 3 * j * layout.chunks.query.value; }
    View host_query_gradient(std::int64_t j) const { return host_output_gradient(j) + layout.chunks.query.value; }
};

/// Chunk j for key chunk i; on its way from the host, or where it lies. In the first row dq starts and the gradient of
/// the output comes from the other ranks.
QueryChunk query_chunk(const Backward& run, std::int64_t i, std::int64_t j) {
    const Layout& layout = run.layout;
    const Bytes query = layout.chunks.query;
    if (!layout.offload) {
        return {layout.query(j), layout.output(j), View(run.gradients) + j * query.value, layout.lse(j),
                View(run.query_sums) + 2 * j * query.value};
    }
    const char* name = "q, out, dout, dq, lse of a chunk";
    QueryChunk chunk;
    chunk.tensor = run.step.to.renew(run.chunk_id, name, Group::attention, run.chunk_bytes());
    chunk.query = chunk.tensor;
    chunk.output = chunk.query + query.value;
    chunk.output_gradient = chunk.output + query.value;
    chunk.gradient = chunk.output_gradient + query.value;
    chunk.lse = chunk.gradient + 2 * query.value;
    std::array<Move, 5> moves{Move{layout.query(j), chunk.query, query.value},
                              {layout.output(j), chunk.output, query.value},
                              {layout.lse(j), chunk.lse, layout.chunks.lse.value}};
    Bytes bytes = 2 * query + layout.chunks.lse;
    if (i > 0) {
        moves[3] = {run.host_output_gradient(j), chunk.output_gradient, query.value};
        moves[4] = {run.host_query_gradient(j), chunk.gradient, 2 * query.value};
        bytes += 3 * query;
    }
    fetch(run.step, "prefetch a query chunk", bytes, moves, run.stored[j], run.arrived);
    return chunk;
}

/// The gradient of one chunk of the output goes to the heads' owners.
void receive_output_gradient(const Backward& run, const QueryChunk& chunk, std::int64_t j) {
    const Bytes bytes = run.layout.chunks.query;
    const View from = run.output_gradient + j * bytes.value;
    if (run.step.work.recipe.ulysses > 1) {
        exchange_into(run.step, from, chunk.output_gradient, bytes);
        return;
    }
    run.step.copy("gradient of output of a chunk", 2 * bytes);
    run.step.to.computes(Transfer{{Move{from, chunk.output_gradient, bytes.value}}});
}

/// dq[j], dk, dv += gradients of one pair of chunks.
void accumulate(const Backward& run, const QueryChunk& chunk, View key, View value, View key_sums, bool diagonal,
                bool first_query) {
    Step& step = run.step;
    const Chunks& chunks = run.layout.chunks;
    const View value_sums = key_sums + 2 * chunks.key.value;
    const TensorId blocks = step.attention("block gradients of q, k, v", chunks.query + 2 * chunks.key);
    const View key_block = View(blocks) + chunks.query.value;
    const View value_block = key_block + chunks.key.value;
    const KernelWorkspace need =
        backward_workspace(step.work.recipe.attention_kernel, chunks.query, chunks.key, chunks.lse, step.work.group);
    const TensorId accumulator = step.workspace("attention kernel: dQ accumulator", need.query_accumulator);
    const TensorId key_accumulators = step.workspace("attention kernel: dK and dV accumulators", need.key_accumulators);
    const TensorId row_sums = step.workspace("attention kernel: row sums", need.row_sums);
    step.to.attention("attention backward", chunk_kernel(step.work, chunks, diagonal, true));
    step.to.computes(AttentionCall{.query = chunk.query,
                                   .key = key,
                                   .value = value,
                                   .output = chunk.output,
                                   .exponent = chunk.lse,
                                   .output_gradient = chunk.output_gradient,
                                   .query_gradient = blocks,
                                   .key_gradient = key_block,
                                   .value_gradient = value_block,
                                   .accumulator = accumulator,
                                   .delta = row_sums});
    step.release(accumulator, key_accumulators, row_sums);
    step.mixed("add gradients", 5 * chunks.query + 10 * chunks.key, 3);
    const auto add = [&](View sum, View term, Bytes bytes, bool first) {
        const std::int64_t elements = bytes.value / step.work.element;
        if (first) {
            step.to.computes(Convert{term, sum, elements, true});
        } else {
            step.to.computes(AddTo{sum, term, elements});
        }
    };
    add(chunk.gradient, blocks, chunks.query, first_query);
    add(key_sums, key_block, chunks.key, diagonal);
    add(value_sums, value_block, chunks.key, diagonal);
    step.release(blocks);
}

struct WeightGradients {
    View query, key, value;
};

/// dq, dk, dv of chunk i back through rotary, all-to-all and the QKV weights.
void project_chunk(const Backward& run, std::int64_t i, TensorId query, View key_sums, View input_gradient,
                   const WeightGradients& weights) {
    Step& step = run.step;
    const Workload& work = step.work;
    const Chunks& chunks = run.layout.chunks;
    const std::int64_t tokens = chunks.rows * work.recipe.ulysses;
    const std::int64_t key_elements = chunks.key.value / work.element;
    TensorId normed = no_tensor;
    View input = step.operands.input + i * chunks.hidden.value;
    if (run.layout.offload) {
        input = normed = step.attention("normed input of a chunk", chunks.hidden);
        fetch(step, "fetch normed input", chunks.hidden, {Move{run.layout.input(i), input, chunks.hidden.value}},
              run.stored[i], run.arrived);
    }
    const TensorId key = step.attention("chunk gradient of key", chunks.key);
    const TensorId value = step.attention("chunk gradient of value", chunks.key);
    step.eager("chunk gradients from fp32", 6 * chunks.key, 2);
    step.to.computes(Convert{key_sums, key, key_elements, false});
    step.to.computes(Convert{key_sums + 2 * chunks.key.value, value, key_elements, false});
    step.eager("rotary embedding backward", 2 * (chunks.query + chunks.key), 2);
    step.to.computes(Rotary{query, 1, tokens, work.model.query_width() / work.recipe.ulysses, i * tokens, true});
    step.to.computes(Rotary{key, 1, tokens, kv_columns(work) / work.recipe.ulysses, i * tokens, true});
    const auto exchange_back = [&](const char* name, TensorId tensor, Bytes bytes) {
        const TensorId mine = scatter_sequence(step, name, tensor, bytes, false);
        if (mine == no_tensor) return tensor;
        step.release(tensor);
        return mine;
    };
    const TensorId my_query = exchange_back("chunk gradient of query, my tokens", query, chunks.query);
    const TensorId my_key = exchange_back("chunk gradient of key, my tokens", key, chunks.key);
    const TensorId my_value = exchange_back("chunk gradient of value, my tokens", value, chunks.key);
    if (normed != no_tensor) step.to.wait(Stream::compute, run.arrived);
    const std::int64_t columns = work.model.query_width() + 2 * kv_columns(work);
    const auto of = projections(step, chunks, input);
    step.to.gemm("QKV projection of a chunk, input gradient", chunks.rows, work.model.hidden, columns);
    step.to.computes(input_product(step, of[0], my_query, input_gradient, false));
    step.to.computes(input_product(step, of[1], my_key, input_gradient, true));
    step.to.computes(input_product(step, of[2], my_value, input_gradient, true));
    step.to.gemm("QKV projection of a chunk, weight gradient", columns, work.model.hidden, chunks.rows);
    step.to.computes(weight_product(step, of[0], my_query, weights.query, i > 0));
    step.to.computes(weight_product(step, of[1], my_key, weights.key, i > 0));
    step.to.computes(weight_product(step, of[2], my_value, weights.value, i > 0));
    step.release(normed, my_query, my_key, my_value);
}

}  // namespace

Kept fpdt_lean_forward(Step& step, bool keep) {
    const Workload& work = step.work;
    if (runs_in_one_chunk(work)) return usp_forward(step, keep);  // nothing is chunked: plain Ulysses
    const Chunks chunks = chunks_of(work);
    const bool offload = work.recipe.offload.chunks;
    Kept kept;
    const Layout layout{work, chunks, kept, offload, keep};
    const bool in_place = !offload && keep;  // out and lse are written where backward wants them
    if (offload) {
        kept.key_raw =
            host_buffer(step, "chunks of q, out, k, v, lse and normed input", chunks.count * layout.record());
    } else {
        kept.key = step.attention("chunks of key", work.key);
        kept.value = step.attention("chunks of value", work.key);
    }
    if (in_place) {
        kept.query = step.attention("chunks of query", work.query);
        kept.output = step.attention("chunks of output", work.query);
        kept.lse = step.attention("log-sum-exp", work.lse);
    }
    kept.projected = step.attention("attention output, my tokens", work.query);

    const Syncs stored(step, chunks.count);
    const SyncId output_stored = step.to.reserve_syncs(1);
    std::array<TensorId, 2> outputs{no_tensor, no_tensor};  // of the chunk before, on their way to the host
    for (std::int64_t i = 0; i < chunks.count; ++i) {
        OwnChunk own = load_chunk(step, layout, i);
        if (offload) {
            if (i > 0 && keep) step.to.wait(Stream::compute, output_stored);
            const Bytes kept_bytes = 2 * chunks.key + (keep ? chunks.query + chunks.hidden : Bytes{0});
            std::array<Move, 5> moves{Move{own.key, layout.key(i), chunks.key.value},
                                      {own.value, layout.value(i), chunks.key.value}};
            if (keep) {
                moves[2] = {own.query, layout.query(i), chunks.query.value};
                moves[3] = {step.operands.input + i * chunks.hidden.value, layout.input(i), chunks.hidden.value};
            }
            store(step, "offload a chunk", kept_bytes, moves, stored[i]);
        }
        step.release(outputs[0], outputs[1]);
        const TensorId sum = step.attention("chunk output, fp32", 2 * chunks.query);
        View lse = layout.lse(i);
        View output = layout.output(i);
        if (!in_place) lse = outputs[1] = step.attention("chunk log-sum-exp", chunks.lse);
        attend_to_earlier(step, layout, stored, i, own.query, sum, lse);
        attend(step, chunks, own.query, own.key, own.value, true, sum, lse, i == 0);
        if (offload) step.to.wait(Stream::compute, stored[i]);
        for (const TensorId tensor : own.tensors) step.release(tensor);
        if (!in_place) output = outputs[0] = step.attention("chunk output", chunks.query);
        step.eager("chunk output from fp32", 3 * chunks.query);
        step.to.computes(Convert{sum, output, chunks.query.value / work.element, false});
        step.release(sum);
        if (offload && keep) {
            store(step, "offload out, lse", chunks.query + chunks.lse,
                  {Move{output, layout.output(i), chunks.query.value}, {lse, layout.lse(i), chunks.lse.value}},
                  output_stored);
        }
        const View mine = View(kept.projected) + i * chunks.query.value;
        if (work.recipe.ulysses > 1) {
            exchange_into(step, output, mine, chunks.query);
        } else {
            step.copy("write chunk into output", 2 * chunks.query);
            step.to.computes(Transfer{{Move{output, mine, chunks.query.value}}});
        }
    }
    if (offload && keep) step.to.wait(Stream::compute, output_stored);
    step.release(outputs[0], outputs[1]);
    if (!keep) step.release(kept.key_raw, kept.query, kept.key, kept.value, kept.output, kept.lse);
    kept.result = output_projection(step, kept.projected, work.recipe.ulysses, chunks.count);
    if (!keep) step.release(kept.projected);
    return kept;
}

TensorId fpdt_lean_backward(Step& step, Kept& kept) {
    const Workload& work = step.work;
    if (runs_in_one_chunk(work)) return usp_backward(step, kept);
    const Chunks chunks = chunks_of(work);
    const std::int64_t count = chunks.count;
    const bool offload = work.recipe.offload.chunks;
    const Layout layout{work, chunks, kept, offload};

    const TensorId output_gradient = output_projection_backward(step, kept.projected, work.recipe.ulysses, true, count);
    const TensorId input_gradient = step.attention("gradient of normed input", work.hidden);
    const View query_weight = step.weight_gradient("gradient of wq", work.parameters.query);
    const View key_weight = step.weight_gradient("gradient of wk and wv", work.parameters.key_value);
    const WeightGradients weights{query_weight, key_weight,
                                  key_weight + work.weights(kv_columns(work) * work.model.hidden).value};
    Backward run{step,
                 layout,
                 output_gradient,
                 offload ? host_buffer(step, "chunks of dout and dq, fp32", 3 * work.query)
                         : step.attention("gradient of output, my heads", work.query),
                 offload ? no_tensor : step.attention("gradients of query, fp32", 2 * work.query),
                 step.to.reserve(),
                 step.to.reserve_syncs(1),
                 Syncs(step, count)};

    // What forward stored is on the host.
    for (std::int64_t i = 0; offload && i < (run.stored.many ? count : 1); ++i) {
        step.to.record_again(Stream::device_to_host, run.stored[i]);
    }
    View key = layout.key(0);
    View value = layout.value(0);
    std::array<TensorId, 2> keys{no_tensor, no_tensor};
    const SyncId keys_arrived = step.to.reserve_syncs(1);
    const auto fetch_keys = [&](std::int64_t i) {
        key = keys[0] = step.attention("key of a chunk", chunks.key);
        value = keys[1] = step.attention("value of a chunk", chunks.key);
        fetch(step, "fetch k, v", 2 * chunks.key,
              {Move{layout.key(i), key, chunks.key.value}, {layout.value(i), value, chunks.key.value}}, run.stored[i],
              keys_arrived);
    };
    if (offload) fetch_keys(0);
    QueryChunk current = query_chunk(run, 0, 0);
    for (std::int64_t i = 0; i < count; ++i) {
        const TensorId key_sums = step.attention("gradients of key and value, fp32", 4 * chunks.key);
        if (offload) {
            step.to.wait(Stream::compute, keys_arrived);
            step.to.wait(Stream::compute, run.arrived);
        }
        QueryChunk next = i + 1 < count ? query_chunk(run, i, i + 1) : QueryChunk{};
        if (i == 0) receive_output_gradient(run, current, 0);
        accumulate(run, current, key, value, key_sums, true, i == 0);
        // The last contribution to dq[i].
        const TensorId query = step.attention("chunk gradient of query", chunks.query);
        step.eager("chunk gradient of query from fp32", 3 * chunks.query);
        step.to.computes(Convert{current.gradient, query, chunks.query.value / work.element, false});

        QueryChunk before = current;
        current = next;
        const bool stays = i + 2 == count;  // the only query chunk of this row is that of the next one, too
        step.to.loop(count - 1 - i, [&](std::int64_t turn) {
            const std::int64_t j = i + 1 + turn;
            if (offload) step.to.wait(Stream::compute, run.arrived);
            next = stays ? QueryChunk{} : query_chunk(run, j + 1 < count ? i : i + 1, j + 1 < count ? j + 1 : i + 1);
            if (i == 0) receive_output_gradient(run, current, j);
            accumulate(run, current, key, value, key_sums, false, i == 0);
            if (!offload) {
                current = next;
                return;
            }
            step.to.wait(Stream::compute, run.stored[j - 1]);
            step.release(before.tensor);
            before = stays ? QueryChunk{} : current;
            if (stays) return;
            const Bytes output_bytes = i == 0 ? chunks.query : Bytes{0};
            std::array<Move, 5> moves{Move{current.gradient, run.host_query_gradient(j), 2 * chunks.query.value}};
            if (i == 0) moves[1] = {current.output_gradient, run.host_output_gradient(j), chunks.query.value};
            store(step, "offload dq", 2 * chunks.query + output_bytes, moves, run.stored[j]);
            current = next;
        });
        if (offload) {
            if (!stays) step.to.wait(Stream::compute, run.stored[count - 1]);
            step.release(before.tensor, keys[0], keys[1]);
            if (i + 1 < count) fetch_keys(i + 1);
        } else if (i + 1 < count) {
            current = query_chunk(run, i + 1, i + 1);
            key = layout.key(i + 1);
            value = layout.value(i + 1);
        }
        project_chunk(run, i, query, key_sums, View(input_gradient) + i * chunks.hidden.value, weights);
        step.release(key_sums);
    }
    step.release(kept.query, kept.key, kept.value, kept.output, kept.lse, kept.key_raw, run.gradients, run.query_sums,
                 output_gradient);
    return input_gradient;
}

}  // namespace headroom
