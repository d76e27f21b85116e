// SPDX-License-Identifier: Apache-2.0
// The layouts are those of the modelling code in huggingface/transformers.
#include "configs/hf_count.hpp"

#include <algorithm>

namespace headroom {
namespace {

/// Qwen: every decoder_sparse_step-th layer has experts, unless mlp_only_layers names it.
std::int64_t qwen_sparse_layers(HfFields& fields, std::int64_t layers) {
    const std::int64_t step = fields.size({"decoder_sparse_step"}).value_or(1);
    const std::vector<std::string> dense = fields.words("mlp_only_layers");
    std::int64_t sparse = 0;
    for (std::int64_t layer = 0; layer < layers; ++layer) {
        const bool named = std::find(dense.begin(), dense.end(), std::to_string(layer)) != dense.end();
        if (!named && (layer + 1) % step == 0) ++sparse;
    }
    return sparse;
}

/// DeepSeek: the first layers are dense, then every moe_layer_freq-th has experts.
std::int64_t deepseek_sparse_layers(HfFields& fields, std::int64_t layers) {
    const std::int64_t dense = fields.count({"first_k_dense_replace"}).value_or(0);
    const std::int64_t step = fields.size({"moe_layer_freq"}).value_or(1);
    std::int64_t sparse = 0;
    for (std::int64_t layer = dense; layer < layers; ++layer) {
        if (layer % step == 0) ++sparse;
    }
    return sparse;
}

std::int64_t query_parameters(const Transformer& model, const LatentAttention& latent) {
    const std::int64_t width = model.heads * (latent.plain_dim + latent.rotary_dim);
    if (latent.query_rank == 0) return model.hidden * width;
    return model.hidden * latent.query_rank + latent.query_rank + latent.query_rank * width;  // with a norm between
}

std::int64_t latent_parameters(const Transformer& model, const LatentAttention& latent) {
    const std::int64_t down = model.hidden * (latent.kv_rank + latent.rotary_dim) + latent.kv_rank;
    const std::int64_t up = latent.kv_rank * model.heads * (latent.plain_dim + latent.value_dim);
    const std::int64_t output = model.heads * latent.value_dim * model.hidden;
    return query_parameters(model, latent) + down + up + output;
}

}  // namespace

std::optional<std::int64_t> expert_count(HfFields& fields) {
    const auto count = fields.count({"num_experts", "num_local_experts", "n_routed_experts", "moe_num_experts"});
    return count.value_or(0) > 0 ? count : std::nullopt;
}

std::string_view expert_count_name(const HfFamily& family) {
    switch (family.experts) {
        case ExpertStyle::deepseek:
        case ExpertStyle::deepseek_v3:
            return "n_routed_experts";
        case ExpertStyle::qwen:
            return "num_experts";
        default:
            return "num_local_experts";
    }
}

Experts read_experts(HfFields& fields, const HfFamily& family, std::int64_t layers) {
    Experts experts;
    experts.count = expert_count(fields).value_or(0);
    experts.sparse_layers = layers;
    switch (family.experts) {
        case ExpertStyle::none:
            return experts;
        case ExpertStyle::mixtral:
            experts.width = fields.required_size({"intermediate_size"});
            break;
        case ExpertStyle::qwen:
            experts.width = fields.required_size({"moe_intermediate_size"});
            experts.shared_width = fields.count({"shared_expert_intermediate_size"}).value_or(0);
            experts.shared_gate = experts.shared_width > 0;
            experts.sparse_layers = qwen_sparse_layers(fields, layers);
            if (experts.sparse_layers < layers) experts.dense_width = fields.required_size({"intermediate_size"});
            break;
        case ExpertStyle::gpt_oss:
            experts.width = fields.required_size({"intermediate_size"});
            experts.router_bias = experts.biases = experts.sinks = true;
            break;
        case ExpertStyle::deepseek:
        case ExpertStyle::deepseek_v3:
            experts.width = fields.required_size({"moe_intermediate_size"});
            experts.shared_width = fields.count({"n_shared_experts"}).value_or(0) * experts.width;
            // e_score_correction_bias: always in the V3 class, in V2 code only with this routing
            experts.router_bias =
                family.experts == ExpertStyle::deepseek_v3 || fields.word("topk_method") == "noaux_tc";
            experts.sparse_layers = deepseek_sparse_layers(fields, layers);
            if (experts.sparse_layers < layers) experts.dense_width = fields.required_size({"intermediate_size"});
            break;
        case ExpertStyle::llama4: {
            experts.width = fields.required_size({"intermediate_size"});
            experts.shared_width = experts.width;  // always one
            const Value* listed = fields.list("moe_layers");
            const std::int64_t step = fields.size({"interleave_moe_layer_step"}).value_or(1);
            experts.sparse_layers = listed ? static_cast<std::int64_t>(listed->items.size()) : layers / step;
            if (experts.sparse_layers < layers) experts.dense_width = fields.required_size({"intermediate_size_mlp"});
            break;
        }
        case ExpertStyle::minimax:
            experts.width = fields.required_size({"intermediate_size"});
            experts.shared_width = fields.count({"shared_intermediate_size"}).value_or(0);
            experts.router_bias = fields.flag("use_routing_bias").value_or(false);
            break;
    }
    experts.top_k = fields.required_size({"num_experts_per_tok", "experts_per_token", "top_k_experts"});
    return experts;
}

std::optional<LatentAttention> read_latent_attention(HfFields& fields) {
    const auto kv_rank = fields.count({"kv_lora_rank"});
    if (kv_rank.value_or(0) == 0) return std::nullopt;
    LatentAttention latent;
    latent.kv_rank = *kv_rank;
    latent.query_rank = fields.count({"q_lora_rank"}).value_or(0);  // null and 0 both mean none
    latent.plain_dim = fields.required_size({"qk_nope_head_dim"});
    latent.rotary_dim = fields.required_size({"qk_rope_head_dim"});
    latent.value_dim = fields.required_size({"v_head_dim"});
    return latent;
}

Counts count_sparse(const Transformer& model, const std::optional<Experts>& experts,
                    const std::optional<LatentAttention>& latent) {
    const ParameterCount dense = count_parameters(model);
    std::int64_t attention = latent ? latent_parameters(model, *latent) : dense.attention();
    if (experts && experts->sinks) attention += model.heads;
    const std::int64_t shared_by_all = attention + dense.norms;
    if (!experts) {
        const std::int64_t total = dense.root() + model.layers * (shared_by_all + dense.mlp);
        return {total, total};
    }
    const std::int64_t matrices = 3 * model.hidden;  // gate, up and down, per unit of width
    const std::int64_t biases = experts->biases ? 2 * experts->width + model.hidden : 0;
    const std::int64_t expert = matrices * experts->width + biases;
    const std::int64_t router = model.hidden * experts->count + (experts->router_bias ? experts->count : 0);
    const std::int64_t shared = matrices * experts->shared_width + (experts->shared_gate ? model.hidden : 0);
    const std::int64_t always = dense.root() + model.layers * shared_by_all +
                                (model.layers - experts->sparse_layers) * matrices * experts->dense_width +
                                experts->sparse_layers * (router + shared);
    return {always + experts->sparse_layers * experts->count * expert,
            always + experts->sparse_layers * experts->top_k * expert};
}

Counts count_with_cross_attention(const Transformer& model, std::int64_t cross_layers) {
    // MllamaTextModel: 8 more embedding rows for image tokens; in a cross-attention layer norms of q and k per head
    // and two gates of one value. Everything else is as in a self-attention layer.
    const std::int64_t extra = 8 * model.hidden + cross_layers * (2 * model.head_dim + 2);
    const std::int64_t total = count_parameters(model).total() + extra;
    return {total, total};
}

}  // namespace headroom
