// SPDX-License-Identifier: Apache-2.0
// Attention over a whole sequence and its gradients, written out.
#include <utility>

#include "calibrate/check.hpp"
#include "calibrate/reference_parts.hpp"

namespace headroom {
namespace {

/// q or k on its way through its norm, if there is one.
struct NormedHeads {
    ReferenceValues raw, weight, values;

    NormedHeads(ReferenceValues projected, const std::vector<float>& norm)
        : raw(std::move(projected)),
          weight(norm.begin(), norm.end()),
          values(norm.empty() ? raw : rms_norm(raw, weight)) {}

    /// `gradient` becomes that of the raw values; returns that of the weight.
    ReferenceValues backward(ReferenceValues& gradient) const {
        if (weight.empty()) return {};
        NormGradients through = rms_norm_gradients(raw, weight, gradient);
        gradient = std::move(through.in);
        return through.weight;
    }
};

}  // namespace

CheckReference::CheckReference(const TransformerShape& model, std::int64_t context) : context_(context) {
    const std::int64_t hidden = model.hidden;
    const std::int64_t wide = model.query_width();
    const std::int64_t narrow = model.kv_width();
    const double weight_spread = projection_spread(hidden);
    input = random_values(context * hidden, 1.0, 1);
    query_weight = random_values(wide * hidden, weight_spread, 2);
    key_weight = random_values(narrow * hidden, weight_spread, 3);
    value_weight = random_values(narrow * hidden, weight_spread, 4);
    output_weight = random_values(hidden * wide, weight_spread, 5);
    result_gradient = random_values(context * hidden, 1.0, 6);
    query_norm = random_norm(model.qk_norm_width(model.heads), 7);
    key_norm = random_norm(model.qk_norm_width(model.kv_heads), 8);

    NormedHeads query(times_transposed(input, query_weight, context, wide, hidden), query_norm);
    NormedHeads key(times_transposed(input, key_weight, context, narrow, hidden), key_norm);
    const ReferenceValues value = times_transposed(input, value_weight, context, narrow, hidden);
    turn_heads(query.values, context, wide, model.head_dim, 1);
    turn_heads(key.values, context, narrow, model.head_dim, 1);
    const CausalAttention attention{model, context, query.values, key.values, value};
    const ReferenceValues out = attention.output();
    output = times_transposed(out, output_weight, context, hidden, wide);

    ReferenceValues out_gradient(out.size());
    add_product(out_gradient, result_gradient, output_weight, context, wide, hidden);
    output_weight_gradient = transposed_times(result_gradient, out, hidden, wide, context);
    CausalGradients gradients = attention.gradients(out, out_gradient);
    turn_heads(gradients.query, context, wide, model.head_dim, -1);
    turn_heads(gradients.key, context, narrow, model.head_dim, -1);
    query_norm_gradient = query.backward(gradients.query);
    key_norm_gradient = key.backward(gradients.key);
    input_gradient.assign(input.size(), 0.0);
    add_product(input_gradient, gradients.query, query_weight, context, hidden, wide);
    add_product(input_gradient, gradients.key, key_weight, context, hidden, narrow);
    add_product(input_gradient, gradients.value, value_weight, context, hidden, narrow);
    query_weight_gradient = transposed_times(gradients.query, input, wide, hidden, context);
    key_weight_gradient = transposed_times(gradients.key, input, narrow, hidden, context);
    value_weight_gradient = transposed_times(gradients.value, input, narrow, hidden, context);
}

}  // namespace headroom
