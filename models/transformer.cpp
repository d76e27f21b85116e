// SPDX-License-Identifier: Apache-2.0
#include "models/transformer.hpp"

namespace headroom {

ParameterCount count_parameters(const TransformerShape& model) {
    const std::int64_t norm_width = model.norm == NormKind::layer ? 2 : 1;
    ParameterCount count;
    count.layers = model.layers;
    count.query = model.hidden * model.query_width() + (model.qkv_bias ? model.query_width() : 0);
    count.key_value = 2 * (model.hidden * model.kv_width() + (model.qkv_bias ? model.kv_width() : 0));
    count.output = model.query_width() * model.hidden + (model.output_bias ? model.hidden : 0);

    const std::int64_t wide_matrices = model.mlp == MlpKind::gated ? 2 : 1;
    count.mlp = (wide_matrices + 1) * model.hidden * model.ffn;
    if (model.mlp_bias) count.mlp += wide_matrices * model.ffn + model.hidden;

    count.norms = model.norms_per_block * norm_width * model.hidden + model.qk_norm_weights();

    count.embedding = (model.vocabulary + model.learned_positions) * model.hidden;
    count.final_norm = norm_width * model.hidden;
    count.head = model.tied_embeddings ? 0 : model.vocabulary * model.hidden;
    return count;
}

}  // namespace headroom
