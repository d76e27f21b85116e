// SPDX-License-Identifier: Apache-2.0
// Backward of lean FPDT: for key chunk i, for query chunk j >= i: dq[j], dk, dv += ..., with the next query chunk on
// its way from the host and the last dq on its way back; then the projections of chunk i.
#include <array>

#include "models/methods/fpdt_lean.hpp"
#include "models/methods/qk_norm.hpp"

namespace headroom {

using namespace fpdt;

namespace {

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
                                   .delta = row_sums,
                                   .workspace = key_accumulators,
                                   .workspace_bytes = need.key_accumulators.value});
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
    QkNormGradients& norms;
};

/// Back through the QK norm of a chunk. What the norm had read is projected once more: that takes less time than its
/// way to the host and back, and no memory there.
void normalise_back(const Backward& run, const std::array<Projection, 3>& of, View query, View key,
                    QkNormGradients& norms) {
    Step& step = run.step;
    if (!has_lean_qk_norm(step)) return;
    const Chunks& chunks = run.layout.chunks;
    const TensorId raw_query = step.attention("chunk query before its norm", chunks.query);
    project(step, "query projection of a chunk, again", of[0], raw_query);
    norms.through_query(raw_query, query, chunks.query);
    step.release(raw_query);
    const TensorId raw_key = step.attention("chunk key before its norm", chunks.key);
    project(step, "key projection of a chunk, again", of[1], raw_key);
    norms.through_key(raw_key, key, chunks.key);
    step.release(raw_key);
}

/// dq, dk, dv of chunk i back through all-to-all, rotary, QK norm and the QKV weights.
void project_chunk(const Backward& run, std::int64_t i, TensorId query, View key_sums, View input, View input_gradient,
                   const WeightGradients& weights) {
    Step& step = run.step;
    const Workload& work = step.work;
    const Chunks& chunks = run.layout.chunks;
    const std::int64_t key_elements = chunks.key.value / work.element;
    const TensorId key = step.attention("chunk gradient of key", chunks.key);
    const TensorId value = step.attention("chunk gradient of value", chunks.key);
    step.eager("chunk gradients from fp32", 6 * chunks.key, 2);
    step.to.computes(Convert{key_sums, key, key_elements, false});
    step.to.computes(Convert{key_sums + 2 * chunks.key.value, value, key_elements, false});
    const auto exchange_back = [&](const char* name, TensorId tensor, Bytes bytes) {
        const TensorId mine = scatter_sequence(step, name, tensor, bytes, false);
        if (mine == no_tensor) return tensor;
        step.release(tensor);
        return mine;
    };
    const TensorId my_query = exchange_back("chunk gradient of query, my tokens", query, chunks.query);
    const TensorId my_key = exchange_back("chunk gradient of key, my tokens", key, chunks.key);
    const TensorId my_value = exchange_back("chunk gradient of value, my tokens", value, chunks.key);
    step.eager("rotary embedding backward", 2 * (chunks.query + chunks.key), 2);
    turn(step, chunks, i, my_query, my_key, true);
    const std::int64_t columns = work.model.query_width() + 2 * kv_columns(work);
    const auto of = projections(step, chunks, input);
    normalise_back(run, of, my_query, my_key, weights.norms);
    step.to.gemm("QKV projection of a chunk, input gradient", chunks.rows, work.model.hidden, columns);
    step.to.computes(input_product(step, of[0], my_query, input_gradient, false));
    step.to.computes(input_product(step, of[1], my_key, input_gradient, true));
    step.to.computes(input_product(step, of[2], my_value, input_gradient, true));
    step.to.gemm("QKV projection of a chunk, weight gradient", columns, work.model.hidden, chunks.rows);
    step.to.computes(weight_product(step, of[0], my_query, weights.query, i > 0));
    step.to.computes(weight_product(step, of[1], my_key, weights.key, i > 0));
    step.to.computes(weight_product(step, of[2], my_value, weights.value, i > 0));
    step.release(my_query, my_key, my_value);
}

}  // namespace

TensorId fpdt_lean_backward(Step& step, Kept& kept) {
    const Workload& work = step.work;
    if (runs_in_one_chunk(work)) return usp_backward(step, kept);
    const Chunks chunks = chunks_of(work);
    const std::int64_t count = chunks.count;
    const bool offload = work.recipe.offload.chunks;
    const Layout layout{work, chunks, kept, offload};

    Backward run{step,
                 layout,
                 {},
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
    const SyncId input_arrived = step.to.reserve_syncs(1);
    const auto fetch_input = [&](std::int64_t i) {
        const TensorId normed = step.attention("normed input of a chunk", chunks.hidden);
        fetch(step, "fetch normed input", chunks.hidden, {Move{layout.input(i), normed, chunks.hidden.value}},
              run.stored[i], input_arrived);
        return normed;
    };
    // The first chunks come while the output projection goes backward.
    if (offload) fetch_keys(0);
    QueryChunk current = query_chunk(run, 0, 0);
    const TensorId output_gradient = output_projection_backward(step, kept.projected, work.recipe.ulysses, true, count);
    run.output_gradient = output_gradient;
    const TensorId input_gradient = step.attention("gradient of normed input", work.hidden);
    QkNormGradients norms(step);
    const View query_weight = step.weight_gradient("gradient of wq", work.parameters.query);
    const View key_weight = step.weight_gradient("gradient of wk and wv", work.parameters.key_value);
    const View value_weight = key_weight + work.weights(kv_columns(work) * work.model.hidden).value;
    const WeightGradients weights{query_weight, key_weight, value_weight, norms};
    for (std::int64_t i = 0; i < count; ++i) {
        const TensorId key_sums = step.attention("gradients of key and value, fp32", 4 * chunks.key);
        if (offload) {
            step.to.wait(Stream::compute, keys_arrived);
            step.to.wait(Stream::compute, run.arrived);
        }
        QueryChunk next = i + 1 < count ? query_chunk(run, i, i + 1) : QueryChunk{};
        const TensorId normed = offload ? fetch_input(i) : no_tensor;
        if (i == 0) receive_output_gradient(run, current, 0);
        accumulate(run, current, key, value, key_sums, true, i == 0);
        // The last contribution to dq[i].
        const TensorId query = step.attention("chunk gradient of query", chunks.query);
        step.eager("chunk gradient of query from fp32", 3 * chunks.query);
        step.to.computes(Convert{current.gradient, query, chunks.query.value / work.element, false});

        QueryChunk before = current;
        current = next;
        const bool stays = i + 2 == count;  // the only query chunk of this row is that of the next one, too
        const auto accumulate_next = [&](std::int64_t turn) {
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
        };
        // The last fetch of the first row is one for the second, which brings more.
        const std::int64_t turns = count - 1 - i;
        const std::int64_t apart = i == 0 && turns > 1 ? 1 : 0;
        step.to.loop(turns - apart, accumulate_next);
        if (apart == 1) accumulate_next(turns - 1);
        if (offload) {
            if (!stays) step.to.wait(Stream::compute, run.stored[count - 1]);
            step.release(before.tensor, keys[0], keys[1]);
            if (i + 1 < count) fetch_keys(i + 1);
        } else if (i + 1 < count) {
            current = query_chunk(run, i + 1, i + 1);
            key = layout.key(i + 1);
            value = layout.value(i + 1);
        }
        const View input = offload ? View(normed) : step.operands.input + i * chunks.hidden.value;
        if (offload) step.to.wait(Stream::compute, input_arrived);
        project_chunk(run, i, query, key_sums, input, View(input_gradient) + i * chunks.hidden.value, weights);
        step.release(normed, key_sums);
    }
    norms.finish();
    step.release(kept.query, kept.key, kept.value, kept.output, kept.lse, kept.key_raw, run.gradients, run.query_sums,
                 output_gradient);
    return input_gradient;
}

}  // namespace headroom
