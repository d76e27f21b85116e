// SPDX-License-Identifier: Apache-2.0
// Unified sequence parallelism: Ulysses inside, a zig-zag ring outside. With a ring of one it is DeepSpeed-Ulysses,
// with a Ulysses degree of one it is ring attention.
//
//     q, k, v = rotary(x Wq, x Wk), x Wv
//     q, k, v = all_to_all(q), all_to_all(k), all_to_all(v)      sequence shards -> head shards
//     o       = all_to_all(ring_attention(q, k, v))              head shards -> sequence shards
//     y       = o Wo
#include "models/methods/qk_norm.hpp"

namespace headroom {
namespace {

bool one_query_head(const Workload& work) { return work.model.heads == work.recipe.ulysses && work.recipe.batch == 1; }

/// Norm over head_dim (or the whole width) of q and k before the rotary embedding; the raw tensors are saved for it.
void normalise(Step& step, Kept& kept, bool keep) {
    if (step.work.model.qk_norm == QkNorm::none) return;
    kept.query_raw = kept.query;
    kept.key_raw = kept.key;
    kept.query = step.attention("normed query", step.work.query);
    kept.key = step.attention("normed key", step.work.key);
    const Bytes both = step.work.query + step.work.key;
    step.to.memory_bound("QK norm", MemoryKernel::norm_forward, both, both, 2);
    const auto norm = [&](View raw, View weight, View normed, Bytes bytes) {
        step.to.computes(Norm{raw, weight, normed, head_rows(step, bytes), step.work.model.head_dim});
    };
    norm(kept.query_raw, step.operands.query_norm, kept.query, step.work.query);
    norm(kept.key_raw, step.operands.key_norm, kept.key, step.work.key);
    if (keep) return;
    step.release(kept.query_raw, kept.key_raw);
    kept.query_raw = kept.key_raw = no_tensor;
}

void normalise_backward(Step& step, Kept& kept, QkvGradients& gradients) {
    if (step.work.model.qk_norm == QkNorm::none) return;
    const Bytes both = step.work.query + step.work.key;
    const TensorId query = step.attention("gradient of raw query", step.work.query);
    const TensorId key = step.attention("gradient of raw key", step.work.key);
    const TensorId weights = has_lean_qk_norm(step) ? qk_norm_gradient(step) : no_tensor;
    step.to.memory_bound("QK norm backward", MemoryKernel::norm_backward, 2 * both, both, 2);
    const auto norm = [&](View raw, View weight, View gradient, View result, View weight_gradient, Bytes bytes) {
        step.to.computes(NormBackward{raw, weight, gradient, result, weight_gradient, head_rows(step, bytes),
                                      step.work.model.head_dim});
    };
    norm(kept.query_raw, step.operands.query_norm, gradients.query, query, weights, step.work.query);
    norm(kept.key_raw, step.operands.key_norm, gradients.key, key, key_part(step, weights), step.work.key);
    step.release(gradients.query, gradients.key, kept.query_raw, kept.key_raw);
    gradients.query = query;
    gradients.key = key;
}

/// Exchanges one of q, k, v. The shipped code keeps what it sent alive; `sent` collects it.
TensorId exchange_in(Step& step, const char* name, TensorId tensor, Bytes bytes) {
    const TensorId received = gather_sequence(step, name, tensor, bytes);
    if (received == no_tensor) return tensor;
    if (!step.traits.keeps_sent) step.release(tensor);
    return received;
}

/// DeepSpeed's wrapper for Hugging Face makes the exchanged q, k, v contiguous once more, heads before tokens; with one
/// head they are so already.
void copy_again(Step& step, Kept& kept) {
    const Workload& work = step.work;
    const auto copy = [&](const char* name, TensorId& tensor, Bytes bytes, std::int64_t heads) {
        if (heads <= work.recipe.ulysses && work.recipe.batch == 1) return;
        const TensorId again = step.attention(name, bytes);
        step.transpose("copy behind the all-to-all", 2 * bytes);
        step.release(tensor);
        tensor = again;
    };
    copy("query, heads first", kept.query, work.query, work.model.heads);
    copy("key, heads first", kept.key, work.key, work.kv_heads);
    copy("value, heads first", kept.value, work.key, work.kv_heads);
}

TensorId exchange_gradient(Step& step, const char* name, TensorId gradient, Bytes bytes) {
    if (step.work.recipe.ulysses == 1) return gradient;
    const TensorId received =
        scatter_sequence(step, name, gradient, bytes, bytes == step.work.query && one_query_head(step.work));
    step.release(gradient);
    return received;
}

void turn(Step& step, TensorId query, TensorId key, bool back) {
    const Workload& work = step.work;
    step.to.computes(rotation(step, query, work.model.query_width(), 0, work.tokens, back));
    step.to.computes(rotation(step, key, work.kv_heads * work.model.head_dim, 0, work.tokens, back));
}

}  // namespace

void rotate(Step& step, TensorId& query, TensorId& key) {
    const Workload& work = step.work;
    if (!step.traits.eager_rotary) {
        step.eager("rotary embedding", 2 * (work.query + work.key) + work.rotary, 2);
        turn(step, query, key, false);
        return;
    }
    const TensorId wide_query = step.attention("rotary: query, fp32", 2 * work.query);
    const TensorId wide_key = step.attention("rotary: key, fp32", 2 * work.key);
    const TensorId turned_query = step.attention("rotary: rotated query, fp32", 2 * work.query);
    const TensorId turned_key = step.attention("rotary: rotated key, fp32", 2 * work.key);
    const TensorId new_query = step.attention("query", work.query);
    const TensorId new_key = step.attention("key", work.key);
    step.eager("rotary embedding", 10 * (work.query + work.key), 6);
    step.release(wide_query, wide_key, turned_query, turned_key, query, key);
    query = new_query;
    key = new_key;
}

void rotate_backward(Step& step, TensorId& query_gradient, TensorId& key_gradient) {
    const Workload& work = step.work;
    if (!step.traits.eager_rotary) {
        step.eager("rotary embedding backward", 2 * (work.query + work.key) + work.rotary, 2);
        turn(step, query_gradient, key_gradient, true);
        return;
    }
    const auto turn_back = [&](TensorId& gradient, Bytes bytes) {
        const TensorId wide = step.attention("rotary backward: fp32", 2 * bytes);
        const TensorId turned = step.attention("rotary backward: rotated, fp32", 2 * bytes);
        const TensorId narrow = step.attention("gradient before rotary", bytes);
        step.eager("rotary embedding backward", 10 * bytes, 3);
        step.release(wide, turned, gradient);
        gradient = narrow;
    };
    turn_back(query_gradient, work.query);
    turn_back(key_gradient, work.key);
}

Kept usp_forward(Step& step, bool keep) {
    const Workload& work = step.work;
    const std::int64_t kv_width = work.kv_heads * work.model.head_dim;
    Kept kept;
    kept.query = step.attention("query", work.query);
    kept.key = step.attention("key", work.key);
    kept.value = step.attention("value", work.key);
    const Operands& from = step.operands;
    project(step, "query projection", projection(step, work.model.query_width(), from.query_weight), kept.query);
    project(step, "key projection", projection(step, kv_width, from.key_weight), kept.key);
    project(step, "value projection", projection(step, kv_width, from.value_weight), kept.value);
    normalise(step, kept, keep);
    rotate(step, kept.query, kept.key);

    const TensorId sent[] = {kept.query, kept.key, kept.value};
    kept.query = exchange_in(step, "query, my heads", kept.query, work.query);
    kept.key = exchange_in(step, "key, my heads", kept.key, work.key);
    kept.value = exchange_in(step, "value, my heads", kept.value, work.key);
    if (step.traits.contiguous_again && work.recipe.ulysses > 1) copy_again(step, kept);
    ring_forward(step, kept);
    if (!keep && work.recipe.ulysses > 1) step.release(kept.query, kept.key, kept.value);

    kept.projected =
        scatter_sequence(step, "attention output, my tokens", kept.output, work.query, one_query_head(work));
    if (kept.projected == no_tensor) kept.projected = kept.output;
    if (work.recipe.ulysses > 1 && step.traits.keeps_sent) step.release(sent[0], sent[1], sent[2]);
    if (!keep && work.recipe.ulysses == 1) step.release(kept.query, kept.key, kept.value);
    if (!keep && kept.output != kept.projected) step.release(kept.output);
    if (!keep) step.release(kept.lse);

    kept.result = output_projection(step, kept.projected, work.recipe.ulysses);
    if (!keep) step.release(kept.projected);
    return kept;
}

TensorId usp_backward(Step& step, Kept& kept) {
    const Workload& work = step.work;
    const std::int64_t kv_width = work.kv_heads * work.model.head_dim;
    TensorId gradient =
        output_projection_backward(step, kept.projected, work.recipe.ulysses, kept.projected != kept.output);
    const TensorId received = gather_sequence(step, "gradient of output, my heads", gradient, work.query);
    if (received != no_tensor) {
        step.release(gradient);
        gradient = received;
    }
    QkvGradients gradients = ring_backward(step, kept, gradient);
    gradients.query = exchange_gradient(step, "gradient of query, my tokens", gradients.query, work.query);
    gradients.key = exchange_gradient(step, "gradient of key, my tokens", gradients.key, work.key);
    gradients.value = exchange_gradient(step, "gradient of value, my tokens", gradients.value, work.key);
    rotate_backward(step, gradients.query, gradients.key);
    normalise_backward(step, kept, gradients);

    const Operands& from = step.operands;
    const Projection of_query = projection(step, work.model.query_width(), from.query_weight);
    const Projection of_key = projection(step, kv_width, from.key_weight);
    const Projection of_value = projection(step, kv_width, from.value_weight);
    const TensorId input_gradient = step.attention("gradient of normed input", work.hidden);
    const TensorId query_weight = step.weight_gradient("gradient of wq", work.parameters.query);
    project_backward(step, "query projection, input gradient", of_query, gradients.query, input_gradient, false,
                     query_weight);
    step.release(gradients.query);
    const View key_weight = step.weight_gradient("gradient of wk and wv", work.parameters.key_value);
    const View value_weight = key_weight + work.weights(kv_width * work.model.hidden).value;
    if (step.traits.keeps_sent) {
        // Autograd sums the three input gradients out of place.
        const TensorId from_key = step.attention("gradient of normed input, from key", work.hidden);
        project_backward(step, "key projection, input gradient", of_key, gradients.key, from_key, false, key_weight);
        const TensorId from_value = step.attention("gradient of normed input, from value", work.hidden);
        project_backward(step, "value projection, input gradient", of_value, gradients.value, from_value, false,
                         value_weight);
        step.eager("add input gradients", 6 * work.hidden, 2);
        step.release(gradients.key, gradients.value, from_key, from_value);
        return input_gradient;
    }
    project_backward(step, "key projection, input gradient", of_key, gradients.key, input_gradient, true, key_weight);
    project_backward(step, "value projection, input gradient", of_value, gradients.value, input_gradient, true,
                     value_weight);
    step.release(gradients.key, gradients.value);
    return input_gradient;
}

}  // namespace headroom
