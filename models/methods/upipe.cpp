// SPDX-License-Identifier: Apache-2.0
// UPipe, head-wise chunked Ulysses (arXiv 2602.21196; Untied-Ulysses untied_ulysses/fully_fused_attn.py).
//
//     for each stage of U heads:
//         q = rotary(x Wq[stage]);  every g-th stage also k = rotary(x Wk[chunk]), v = x Wv[chunk]
//         q, k, v = all_to_all(...)                  one stage wide
//         out[stage] = all_to_all(attention(q, k, v))
//     y = permute(out) Wo                            stages take one head from each KV group
//
// Backward recomputes q, k, v of each stage, so a stage's buffers are all that attention ever holds beside x and out.
#include <array>

#include "models/methods/qk_norm.hpp"
#include "models/methods/upipe_stages.hpp"

namespace headroom {
namespace {

/// `tensor` holds `columns` of q or k in blocks; `back` turns a gradient.
void rotate_stage(Step& step, Bytes bytes, View tensor, std::int64_t columns, bool back) {
    if (!step.traits.eager_rotary) {
        step.eager("rotary embedding", 2 * bytes + step.work.rotary);
        step.to.computes(rotation(step, tensor, columns, 0, step.work.tokens, back));
        return;
    }
    // A Triton kernel in place, after contiguous copies of cos and sin at every call (rotary.py:69-86).
    const TensorId tables = step.workspace("contiguous cos and sin", step.work.rotary);
    step.eager("rotary embedding", 2 * bytes + 4 * step.work.rotary, 3);
    step.release(tables);
}

/// All heads in one stage leave nothing to chunk. The shipped code still goes through its stage loop.
bool is_ulysses(const Step& step, const Stages& stages) {
    return stages.count == 1 && step.work.recipe.implementation == Implementation::lean;
}

Projection query_projection(const Step& step, const Stages& stages, std::int64_t stage) {
    const Bytes row = step.work.weights(step.work.model.hidden);
    return projection(step, stages.query_width, step.operands.query_weight + (stages.query_weight(stage) * row).value);
}

/// Of K or V, `weight`.
Projection key_projection(const Step& step, const Stages& stages, std::int64_t stage, View weight) {
    const Bytes row = step.work.weights(step.work.model.hidden);
    return projection(step, stages.key_width, weight + (stages.key_weight(stage) * row).value);
}

struct StageTensors {
    TensorId query = no_tensor, key = no_tensor, value = no_tensor;
    TensorId raw_query = no_tensor, raw_key = no_tensor;  ///< before the QK norm, my tokens; only in backward
};

/// QK norm of a stage's query and, where there is one, key: in place, or into other tensors that take their names.
void normalise_stage(Step& step, const Stages& stages, bool backward, TensorId& query, TensorId& key,
                     StageTensors& held) {
    const bool chunk = key != no_tensor;
    if (!has_lean_qk_norm(step)) {
        if (step.work.model.qk_norm == QkNorm::none) return;
        const Bytes normed = chunk ? stages.query + stages.key : stages.query;
        step.to.memory_bound("QK norm", MemoryKernel::norm_forward, normed, normed);
        return;
    }
    const auto norm = [&](const char* name, TensorId& tensor, TensorId& raw, View weight, Bytes bytes) {
        const TensorId from = tensor;
        if (backward) {
            raw = from;
            tensor = step.attention(name, bytes);
        }
        norm_heads(step, from, weight, tensor, bytes);
    };
    norm("normed stage query", query, held.raw_query, step.operands.query_norm, stages.query);
    if (chunk) norm("normed stage key", key, held.raw_key, step.operands.key_norm, stages.key);
}

/// Projects, norms, rotates and exchanges one stage; K and V only where a chunk begins. `backward` keeps what the QK
/// norm reads.
void load_stage(Step& step, const Stages& stages, std::int64_t stage, bool backward, StageTensors& held) {
    const bool chunk = stages.loads_chunk(stage);
    TensorId query = step.attention("stage query", stages.query);
    project(step, "query projection of a stage", query_projection(step, stages, stage), query);
    TensorId key = no_tensor;
    TensorId value = no_tensor;
    if (chunk) {
        key = step.attention("stage key", stages.key);
        value = step.attention("stage value", stages.key);
        project(step, "key projection of a chunk", key_projection(step, stages, stage, step.operands.key_weight), key);
        project(step, "value projection of a chunk", key_projection(step, stages, stage, step.operands.value_weight),
                value);
    }
    normalise_stage(step, stages, backward, query, key, held);
    rotate_stage(step, stages.query, query, stages.query_width, false);
    if (chunk) rotate_stage(step, stages.key, key, stages.key_width, false);

    const auto exchange = [&](const char* name, TensorId& tensor, Bytes bytes) {
        const TensorId received = gather_sequence(step, name, tensor, bytes);
        if (received == no_tensor) return tensor;
        if (!step.traits.keeps_sent) {
            step.release(tensor);
            tensor = no_tensor;
        }
        return received;
    };
    held.query = exchange("stage query, my heads", query, stages.query);
    if (chunk) {
        held.key = exchange("chunk key, my heads", key, stages.key);
        held.value = exchange("chunk value, my heads", value, stages.key);
    }
    if (step.work.recipe.ulysses > 1) step.release(query, key, value);
}

/// The gradients of a K/V chunk, summed over the stages that share it.
void add_chunk(Step& step, const Stages& stages, std::int64_t stage, std::array<TensorId, 2> terms,
               std::array<TensorId, 2> sums) {
    step.eager("add chunk gradients", 6 * stages.key, 2);
    const std::int64_t bytes = stages.key.value;
    if (stages.loads_chunk(stage)) {
        step.to.computes(Transfer{{Move{terms[0], sums[0], bytes}, Move{terms[1], sums[1], bytes}}});
        return;
    }
    for (std::size_t i = 0; i < 2; ++i) {
        step.to.computes(AddTo{sums[i], terms[i], bytes / step.work.element, false});
    }
}

/// Forward over the ring passes Q, not K and V: every rank attends with visiting queries to its own keys.
void attend(Step& step, const Stages& stages, const StageTensors& held, View lse, TensorId& output) {
    const Workload& work = step.work;
    const bool alone = work.recipe.ring == 1;
    if (alone && !step.traits.fp32_output) {
        output = step.attention("stage output", stages.query);
        step.to.attention("attention", stage_kernel(work, stages, false));
        step.to.computes(AttentionCall{
            .query = held.query, .key = held.key, .value = held.value, .output = output, .exponent = lse});
        return;
    }
    const TensorId visiting = step.exchange("ring receive buffer", stages.query);
    TensorId block = step.attention("stage block output", stages.query);
    if (!alone) {
        step.to.wait(Stream::ring, step.to.record(Stream::compute));
        step.to.collective("ring: Q", Stream::ring, CollectiveKind::send_recv, CommGroup::ring, stages.query, false);
    }
    step.to.attention("attention", stage_kernel(work, stages, false));
    const TensorId wide = step.attention("stage output, fp32", 2 * stages.query);
    step.eager("stage output to fp32", 3 * stages.query);
    for (std::int64_t round = 1; round < work.recipe.ring; ++round) {
        step.to.wait(Stream::compute, step.to.record(Stream::ring));
        if (step.traits.eager_merge) {
            step.to.collective("ring barrier", Stream::ring, CollectiveKind::barrier, CommGroup::ring, {0}, true);
            step.to.host_wait("ring barrier", Stream::compute);
        }
        if (round + 1 < work.recipe.ring) {
            step.to.wait(Stream::ring, step.to.record(Stream::compute));
            step.to.collective("ring: Q", Stream::ring, CollectiveKind::send_recv, CommGroup::ring, stages.query,
                               false);
        }
        // Ring rank 0 meets whole visiting queries here, later ranks halves.
        const bool whole = work.role == RingRole::first;
        const Bytes part = whole ? stages.query : stages.query / 2;
        step.release(block);
        block = step.attention("stage block output", part);
        Attention kernel = stage_kernel(work, stages, false);
        kernel.causal = false;
        (whole ? kernel.key_len : kernel.query_len) /= 2;
        step.to.attention("attention", kernel);
        if (step.traits.eager_merge) {
            const TensorId difference = step.workspace("merge: difference, fp32", 2 * part);
            const TensorId product = step.workspace("merge: product, fp32", 2 * part);
            step.mixed("merge partial attention", 19 * part, 8);
            step.release(difference, product);
        } else {
            step.eager("merge partial attention", 5 * part);
        }
    }
    step.release(block, visiting);
    output = step.attention("stage output", stages.query);
    step.eager("stage output from fp32", 3 * stages.query);
    step.release(wide);
}

}  // namespace

Kept upipe_forward(Step& step, bool keep) {
    const Workload& work = step.work;
    const Stages stages = stages_of(work);
    if (is_ulysses(step, stages)) return usp_forward(step, keep);
    Kept kept;
    kept.output = step.attention("attention output", work.query);
    // Log-sum-exp of every stage; the buffers of the stages add up to l.
    kept.lse = step.attention("log-sum-exp", work.lse);
    StageTensors held;
    for (std::int64_t stage = 0; stage < stages.count; ++stage) {
        load_stage(step, stages, stage, false, held);
        TensorId output = no_tensor;
        attend(step, stages, held, View(kept.lse) + stage * stages.lse.value, output);
        step.release(held.query);
        if (stages.drops_chunk(stage)) step.release(held.key, held.value);
        const TensorId mine =
            scatter_sequence(step, "stage output, my tokens", output, stages.query, stages.single_head);
        step.copy("write stage into output", 2 * stages.query);
        step.to.computes(Transfer{{Move{mine == no_tensor ? output : mine,
                                        View(kept.output) + stage * stages.query.value, stages.query.value}}});
        step.release(output, mine);
    }
    kept.projected = kept.output;
    if (!keep) step.release(kept.lse);
    if (step.traits.head_permutation) {
        kept.projected = step.attention("attention output, heads in order", work.query);
        step.to.host_wait("head index on the host", Stream::compute);
        step.copy("permute heads", 2 * work.query);
        if (!keep) step.release(kept.output);
    }
    kept.result = output_projection(step, kept.projected, stages.count * work.recipe.ulysses);
    if (!keep) step.release(kept.projected);
    return kept;
}

TensorId upipe_backward(Step& step, Kept& kept) {
    const Workload& work = step.work;
    const Stages stages = stages_of(work);
    if (is_ulysses(step, stages)) return usp_backward(step, kept);
    const bool ring = work.recipe.ring > 1;
    const bool sums_chunk = stages.reuse > 1 || ring;
    TensorId output_gradient = output_projection_backward(step, kept.projected, stages.count * work.recipe.ulysses,
                                                          kept.projected != kept.output);
    if (step.traits.head_permutation) {
        const TensorId permuted = step.attention("gradient of output", work.query);
        step.to.host_wait("head index on the host", Stream::compute);
        step.copy("permute heads back", 4 * work.query);
        step.release(output_gradient);
        output_gradient = permuted;
    }

    const TensorId input_gradient = step.attention("gradient of normed input", work.hidden);
    const Bytes weight_row = work.weights(work.model.hidden);
    QkNormGradients norms(step);
    const View query_weight = step.weight_gradient("gradient of wq", work.parameters.query);
    const View key_weight = step.weight_gradient("gradient of wk and wv", work.parameters.key_value);
    const View value_weight = key_weight + (work.kv_heads * work.model.head_dim * weight_row).value;
    StageTensors held;
    TensorId key_sum = no_tensor;
    TensorId value_sum = no_tensor;
    for (std::int64_t stage = 0; stage < stages.count; ++stage) {
        load_stage(step, stages, stage, true, held);
        const View output_slice = View(kept.output) + stage * stages.query.value;
        const View gradient_slice = View(output_gradient) + stage * stages.query.value;
        const TensorId output = gather_sequence(step, "stage output, my heads", output_slice, stages.query);
        const TensorId gradient =
            gather_sequence(step, "stage gradient of output, my heads", gradient_slice, stages.query);

        const TensorId query_gradient = step.attention("stage gradient of query", stages.query);
        const TensorId key_gradient = step.attention("chunk gradient of key", stages.key);
        const TensorId value_gradient = step.attention("chunk gradient of value", stages.key);
        if (stages.loads_chunk(stage) && sums_chunk) {
            key_sum = step.attention("chunk gradient of key, summed", stages.key);
            value_sum = step.attention("chunk gradient of value, summed", stages.key);
        }
        const KernelWorkspace need =
            backward_workspace(work.recipe.attention_kernel, stages.query, stages.key, stages.lse, stages.group);
        const TensorId key_accumulators =
            step.workspace("attention kernel: dK and dV accumulators", need.key_accumulators);

        TensorId narrow_query = query_gradient;
        if (ring) {
            narrow_query = step.attention("stage gradient of query, bf16", stages.query);
            const TensorId next = step.exchange("next key and value", 2 * stages.key);
            const TensorId wide_query = step.attention("stage gradient of query, fp32", 2 * stages.query);
            const TensorId wide_keys = step.attention("chunk gradients, fp32", 4 * stages.key);
            const TensorId received = step.exchange("received chunk gradients, fp32", 4 * stages.key);
            const TensorId narrow_keys = step.attention("chunk gradients, bf16", 2 * stages.key);
            for (std::int64_t round = 0; round < work.recipe.ring; ++round) {
                const bool last = round + 1 == work.recipe.ring;
                if (!last) {
                    step.to.wait(Stream::ring, step.to.record(Stream::compute));
                    step.to.collective("ring: K and V", Stream::ring, CollectiveKind::send_recv, CommGroup::ring,
                                       2 * stages.key, false);
                }
                const bool whole = round == 0 || work.role == RingRole::later;
                Attention kernel = stage_kernel(work, stages, true);
                if (round > 0) {
                    kernel.causal = false;
                    (whole ? kernel.key_len : kernel.query_len) /= 2;
                }
                step.to.attention("attention backward", kernel);
                step.mixed("add gradients", 5 * (whole ? stages.query : stages.query / 2) + 10 * stages.key, 3);
                const auto settle = [&] {
                    step.to.wait(Stream::compute, step.to.record(Stream::ring));
                    if (!step.traits.eager_merge) return;
                    step.to.collective("ring barrier", Stream::ring, CollectiveKind::barrier, CommGroup::ring, {0},
                                       true);
                    step.to.host_wait("ring barrier", Stream::compute);
                };
                if (round > 0) settle();
                if (!last) settle();
                step.to.wait(Stream::ring, step.to.record(Stream::compute));
                step.to.collective("ring: dK and dV", Stream::ring, CollectiveKind::send_recv, CommGroup::ring,
                                   4 * stages.key, false);
                if (last) settle();
            }
            step.release(next, wide_query, wide_keys, received, narrow_keys, query_gradient);
        } else {
            const TensorId accumulator = step.workspace("attention kernel: dQ accumulator", need.query_accumulator);
            const TensorId row_sums = work.recipe.implementation == Implementation::lean
                                          ? step.workspace("attention kernel: row sums", need.row_sums)
                                          : no_tensor;
            step.to.attention("attention backward", stage_kernel(work, stages, true));
            step.to.computes(AttentionCall{.query = held.query,
                                           .key = held.key,
                                           .value = held.value,
                                           .output = output == no_tensor ? output_slice : View(output),
                                           .exponent = View(kept.lse) + stage * stages.lse.value,
                                           .output_gradient = gradient == no_tensor ? gradient_slice : View(gradient),
                                           .query_gradient = query_gradient,
                                           .key_gradient = key_gradient,
                                           .value_gradient = value_gradient,
                                           .accumulator = accumulator,
                                           .delta = row_sums,
                                           .workspace = key_accumulators,
                                           .workspace_bytes = need.key_accumulators.value});
            step.release(accumulator, row_sums);
        }
        if (sums_chunk) add_chunk(step, stages, stage, {key_gradient, value_gradient}, {key_sum, value_sum});
        step.release(key_accumulators, gradient, output, held.query);

        const auto exchange_back = [&](const char* name, TensorId tensor, Bytes bytes) {
            const TensorId mine = scatter_sequence(step, name, tensor, bytes, stages.single_head);
            if (mine == no_tensor) return tensor;
            step.release(tensor);
            return mine;
        };
        const TensorId query_mine = exchange_back("stage gradient of query, my tokens", narrow_query, stages.query);
        rotate_stage(step, stages.query, query_mine, stages.query_width, true);
        norms.through_query(held.raw_query, query_mine, stages.query);
        step.release(held.raw_query);
        if (step.traits.adds_input_gradients) step.eager("accumulate input gradient", 2 * work.hidden);
        project_backward(step, "query projection of a stage, input gradient", query_projection(step, stages, stage),
                         query_mine, input_gradient, stage > 0,
                         query_weight + (stages.query_weight(stage) * weight_row).value);
        step.release(query_mine);
        if (sums_chunk) step.release(key_gradient, value_gradient);
        if (!stages.drops_chunk(stage)) {
            if (!sums_chunk) step.release(key_gradient, value_gradient);
            continue;
        }
        step.release(held.key, held.value);
        const TensorId key_mine =
            exchange_back("chunk gradient of key, my tokens", sums_chunk ? key_sum : key_gradient, stages.key);
        const TensorId value_mine =
            exchange_back("chunk gradient of value, my tokens", sums_chunk ? value_sum : value_gradient, stages.key);
        rotate_stage(step, stages.key, key_mine, stages.key_width, true);
        norms.through_key(held.raw_key, key_mine, stages.key);
        step.release(held.raw_key);
        const std::int64_t chunk_offset = (stages.key_weight(stage) * weight_row).value;
        project_backward(step, "key projection of a chunk, input gradient",
                         key_projection(step, stages, stage, step.operands.key_weight), key_mine, input_gradient, true,
                         key_weight + chunk_offset);
        project_backward(step, "value projection of a chunk, input gradient",
                         key_projection(step, stages, stage, step.operands.value_weight), value_mine, input_gradient,
                         true, value_weight + chunk_offset);
        if (step.traits.adds_input_gradients) step.eager("accumulate input gradient", 4 * work.hidden, 2);
        step.release(key_mine, value_mine);
    }
    norms.finish();
    step.release(output_gradient, kept.output, kept.lse);
    return input_gradient;
}

}  // namespace headroom
