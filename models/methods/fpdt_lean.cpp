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
#include "models/methods/fpdt_lean.hpp"

#include <array>

#include "models/methods/qk_norm.hpp"

namespace headroom {

namespace fpdt {

void store(Step& step, const char* name, Bytes bytes, const std::array<Move, 5>& moves, SyncId stored) {
    to_host(step, name, bytes);
    step.to.computes(Transfer{moves});
    step.to.record_again(Stream::device_to_host, stored);
}

void fetch(Step& step, const char* name, Bytes bytes, const std::array<Move, 5>& moves, SyncId stored, SyncId arrived) {
    step.to.wait(Stream::host_to_device, step.to.record(Stream::compute));
    step.to.wait(Stream::host_to_device, stored);
    from_host(step, name, bytes);
    step.to.computes(Transfer{moves});
    step.to.record_again(Stream::host_to_device, arrived);
}

std::int64_t kv_columns(const Workload& work) { return work.kv_heads * work.model.head_dim; }

std::array<Projection, 3> projections(const Step& step, const Chunks& chunks, View input) {
    const std::int64_t blocks = step.work.recipe.ulysses;
    const std::int64_t columns = kv_columns(step.work);
    return {Projection{chunks.rows, step.work.model.query_width(), blocks, input, step.operands.query_weight},
            {chunks.rows, columns, blocks, input, step.operands.key_weight},
            {chunks.rows, columns, blocks, input, step.operands.value_weight}};
}

void turn(Step& step, const Chunks& chunks, std::int64_t i, View query, View key, bool back) {
    const std::int64_t first_row = i * chunks.rows;
    step.to.computes(rotation(step, query, step.work.model.query_width(), first_row, chunks.rows, back));
    step.to.computes(rotation(step, key, kv_columns(step.work), first_row, chunks.rows, back));
}

}  // namespace fpdt

using namespace fpdt;

namespace {

struct OwnChunk {
    View query, key, value;
    std::array<TensorId, 3> tensors{no_tensor, no_tensor, no_tensor};  ///< those to free
};

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
    if (has_lean_qk_norm(step)) {
        norm_heads(step, query, step.operands.query_norm, query, chunks.query);
        norm_heads(step, key, step.operands.key_norm, key, chunks.key);
    }
    step.eager("rotary embedding", 2 * (chunks.query + chunks.key), 2);
    turn(step, chunks, i, query, key, false);
    if (!alone) {
        give_room();
        exchange_into(step, query, own.query, chunks.query);
        exchange_into(step, key, own.key, chunks.key);
        exchange_into(step, value, own.value, chunks.key);
        step.release(fused);
    }
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
                           .head_dim = kernel.head_dim,
                           .first = first});
    step.release(block, block_lse);
}

/// Chunk i of queries against its own keys and those of the chunks before it, which come from the host one kernel
/// ahead, or lie where they are. The own ones first: they are here.
void attend_to_chunks(Step& step, const Layout& layout, const Syncs& stored, std::int64_t i, const OwnChunk& own,
                      View sum, View lse) {
    const Chunks& chunks = layout.chunks;
    const auto attend_own = [&] { attend(step, chunks, own.query, own.key, own.value, true, sum, lse, true); };
    if (!layout.offload || i == 0) {
        attend_own();
        step.to.loop(i, [&](std::int64_t j) {
            attend(step, chunks, own.query, layout.key(j), layout.value(j), false, sum, lse, false);
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
    attend_own();
    step.to.loop(i - 1, [&](std::int64_t j) {
        step.to.wait(Stream::compute, arrived);
        const TensorId next_key = step.to.renew(key, "prefetched key", Group::attention, chunks.key);
        const TensorId next_value = step.to.renew(value, "prefetched value", Group::attention, chunks.key);
        prefetch(j + 1, next_key, next_value);
        attend(step, chunks, own.query, key, value, false, sum, lse, false);
        step.release(key, value);
        key = next_key;
        value = next_value;
    });
    step.to.wait(Stream::compute, arrived);
    attend(step, chunks, own.query, key, value, false, sum, lse, false);
    step.release(key, value);
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
        attend_to_chunks(step, layout, stored, i, own, sum, lse);
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
    if (!keep) step.release(kept.key_raw, kept.query, kept.key, kept.value, kept.output, kept.lse);
    kept.result = output_projection(step, kept.projected, work.recipe.ulysses, chunks.count);
    if (offload && keep) step.to.wait(Stream::compute, output_stored);
    step.release(outputs[0], outputs[1]);
    if (!keep) step.release(kept.projected);
    return kept;
}

}  // namespace headroom
