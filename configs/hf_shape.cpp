// SPDX-License-Identifier: Apache-2.0
#include "configs/hf_shape.hpp"

#include <fmt/format.h>

namespace headroom {
namespace {

const Names kv_head_names{"num_key_value_heads", "num_kv_heads", "n_head_kv", "n_kv_heads"};

/// Falcon 40B and later: grouped queries and, by default, one norm each for attention and MLP.
bool is_new_falcon(HfFields& fields) {
    return fields.flag("new_decoder_architecture").value_or(fields.word("model_type") == "RefinedWeb");
}

bool is_multi_query(HfFields& fields, const HfFamily& family) {
    if (family.name == "Falcon" && is_new_falcon(fields)) return false;
    const bool by_class = family.name == "Falcon" || family.name == "GPT-BigCode";
    return fields.flag("multi_query").value_or(by_class);
}

void read_heads(HfFields& fields, const HfFamily& family, HfShape& shape) {
    Transformer& model = shape.transformer;
    model.heads = fields.required_size({"num_attention_heads", "n_head", "num_heads", "n_heads"});
    model.kv_heads = model.heads;
    if (shape.latent) return;  // a latent for all heads: num_key_value_heads says nothing

    const auto given = fields.size(kv_head_names);
    if (is_multi_query(fields, family)) {
        model.kv_heads = 1;
        shape.notes.push_back("multi_query: all query heads share one KV head");
    } else if (given) {
        model.kv_heads = *given;
    } else if (family.needs_kv_heads && !fields.is_null("num_key_value_heads")) {
        fields.missing("num_key_value_heads");
    } else {
        shape.notes.push_back("no num_key_value_heads: every query head has its own KV head");
    }

    if (model.heads == 0) return;
    const Value* where = fields.field(kv_head_names);
    if (model.kv_heads > model.heads) {
        fields.problem(fmt::format("kv heads ({}) exceed q heads ({})", model.kv_heads, model.heads), where->where());
    } else if (model.heads % model.kv_heads != 0) {
        fields.problem(fmt::format("kv heads ({}) do not divide q heads ({})", model.kv_heads, model.heads),
                       where->where());
    }
}

void read_head_dim(HfFields& fields, const HfFamily& family, HfShape& shape) {
    Transformer& model = shape.transformer;
    if (shape.latent) {
        model.head_dim = shape.latent->plain_dim + shape.latent->rotary_dim;
        return;
    }
    if (const auto given = fields.size({"head_dim"})) {
        model.head_dim = *given;
    } else if (family.needs_head_dim && !fields.is_null("head_dim")) {
        fields.missing("head_dim");
    } else if (model.heads > 0 && model.hidden > 0) {
        model.head_dim = model.hidden / model.heads;
        if (model.hidden % model.heads != 0) {
            fields.problem(
                fmt::format("hidden_size {} is not divisible by num_attention_heads {} and there is no "
                            "head_dim",
                            model.hidden, model.heads));
        }
    }
    if (model.head_dim % 8 != 0) {
        shape.notes.push_back(
            fmt::format("head_dim {} is not a multiple of 8, which flash attention kernels require", model.head_dim));
    } else if (model.head_dim > 256) {
        shape.notes.push_back(fmt::format("head_dim {} is above 256, the limit of flash attention", model.head_dim));
    }
}

void read_mlp(HfFields& fields, const HfFamily& family, HfShape& shape) {
    Transformer& model = shape.transformer;
    const Names names{"intermediate_size", "n_inner", "ffn_dim", "ffn_hidden_size", "d_ff"};
    const bool four_times = family.name == "GPT-2" || family.name == "GPT-BigCode" || family.name == "Falcon";
    model.mlp = family.mlp;
    if (expert_count(fields)) {
        shape.experts = read_experts(fields, family, model.layers);
    } else if (family.experts != ExpertStyle::none) {
        fields.missing(expert_count_name(family));
    } else if (four_times) {
        model.ffn = fields.size(names).value_or(4 * model.hidden);
    } else {
        model.ffn = fields.required_size(names);
    }
}

void read_biases(HfFields& fields, const HfFamily& family, HfShape& shape) {
    Transformer& model = shape.transformer;
    switch (family.biases) {
        case Biases::none:
            break;
        case Biases::flags:
            model.qkv_bias = model.output_bias = fields.flag("attention_bias").value_or(false);
            model.mlp_bias = fields.flag("mlp_bias").value_or(false);
            break;
        case Biases::attention:
            model.qkv_bias = model.output_bias = fields.flag("attention_bias").value_or(true);
            break;
        case Biases::query_key_value:
            model.qkv_bias = true;
            break;
        case Biases::all:
            model.qkv_bias = model.output_bias = fields.flag("attention_bias").value_or(true);
            model.mlp_bias = true;
            break;
        case Biases::bias_flag:
            model.qkv_bias = model.output_bias = model.mlp_bias = fields.flag("bias").value_or(false);
            break;
    }
}

void read_positions(HfFields& fields, const HfFamily& family, HfShape& shape) {
    Transformer& model = shape.transformer;
    const Names names{"max_position_embeddings", "n_positions", "max_sequence_length", "n_ctx"};
    model.max_positions = fields.count(names).value_or(0);
    if (family.name == "GPT-2" || family.name == "GPT-BigCode") {
        model.learned_positions = fields.required_size({"n_positions", "max_position_embeddings"});
        model.rotary_fraction = 0;
        return;
    }
    const double by_class = family.name == "GPT-NeoX" ? 0.25 : 1.0;
    const Value* rope = fields.field({"rope_parameters"});  // where newer files keep the share
    const Value* share = rope && rope->is_map() ? find(*rope, "partial_rotary_factor") : nullptr;
    if (!share) share = fields.field({"partial_rotary_factor", "rotary_pct"});
    const auto dimensions = fields.size({"rotary_dim"});
    if (dimensions && model.head_dim > 0) {
        model.rotary_fraction = static_cast<double>(*dimensions) / static_cast<double>(model.head_dim);
    } else {
        model.rotary_fraction = share ? number(*share) : by_class;
    }
    if (!(model.rotary_fraction >= 0 && model.rotary_fraction <= 1)) {
        fields.problem(fmt::format("the rotary share of head_dim cannot be {}", model.rotary_fraction));
    }
}

void read_norms(HfFields& fields, const HfFamily& family, HfShape& shape) {
    Transformer& model = shape.transformer;
    model.norm = family.norm;
    model.norms_per_block = family.norms_per_block;
    model.qk_norm = family.qk_norm;
    // Llama 4's and some others' flag for a norm without weights; MiniMax has weights only with it.
    if (family.experts == ExpertStyle::minimax && !fields.flag("use_qk_norm").value_or(true)) {
        model.qk_norm = QkNorm::none;
    }
    if (model.norms_per_block == 4) shape.refusals.push_back("norms after attention and MLP beside those before");
    if (family.name == "OLMo 2") {
        shape.notes.push_back("norms stand after attention and MLP; memory is modelled as if before");
    }
}

/// Attention and MLP read the same input and are added together.
void read_parallel_blocks(HfFields& fields, const HfFamily& family, HfShape& shape) {
    bool parallel = false;
    if (family.name == "GPT-NeoX") parallel = fields.flag("use_parallel_residual").value_or(true);
    if (family.name == "Falcon") {
        const bool is_new = is_new_falcon(fields);
        parallel = is_new || fields.flag("parallel_attn").value_or(true);
        if (is_new) {
            shape.transformer.norms_per_block = static_cast<int>(fields.size({"num_ln_in_parallel_attn"}).value_or(2));
        } else {
            shape.transformer.norms_per_block = parallel ? 1 : 2;
        }
        if (fields.flag("alibi").value_or(false)) shape.refusals.push_back("ALiBi position biases");
    }
    if (parallel) shape.refusals.push_back("parallel attention and MLP");
}

}  // namespace

HfShape read_shape(HfFields& fields, const HfFamily& family) {
    HfShape shape;
    for (const std::string_view name : family.needs_lists) {
        if (!name.empty() && !fields.list(name)) fields.missing(name);
    }
    Transformer& model = shape.transformer;
    model.layers = fields.required_size({"num_hidden_layers", "n_layer", "num_layers", "n_layers"});
    if (constexpr std::int64_t most_layers = 100'000; model.layers > most_layers) {
        fields.problem(fmt::format("num_hidden_layers cannot be {}", model.layers));
        model.layers = 0;
    }
    model.hidden = fields.required_size({"hidden_size", "n_embd", "d_model"});
    model.vocabulary = fields.required_size({"vocab_size"});
    shape.latent = read_latent_attention(fields);
    const bool always_latent = family.experts == ExpertStyle::deepseek || family.experts == ExpertStyle::deepseek_v3;
    if (always_latent && !shape.latent) fields.missing("kv_lora_rank");
    read_heads(fields, family, shape);
    read_head_dim(fields, family, shape);
    read_mlp(fields, family, shape);
    read_biases(fields, family, shape);
    read_positions(fields, family, shape);
    read_norms(fields, family, shape);
    read_parallel_blocks(fields, family, shape);
    const auto tied = fields.flag("tie_word_embeddings");
    model.tied_embeddings = tied.value_or(family.tied);
    if (!tied && family.tied) shape.notes.push_back("no tie_word_embeddings: tied, the default of the class");
    return shape;
}

}  // namespace headroom
