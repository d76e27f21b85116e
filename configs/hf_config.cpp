// SPDX-License-Identifier: Apache-2.0
#include "configs/hf_config.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <utility>

#include "configs/hf_count.hpp"
#include "configs/hf_families.hpp"
#include "configs/hf_fields.hpp"
#include "configs/hf_layers.hpp"
#include "configs/hf_shape.hpp"

namespace headroom {
namespace {

/// The names of the original Llama and DeepSeek code, and theirs in Hugging Face configs.
constexpr std::array<std::pair<std::string_view, std::string_view>, 9> native_names{
    {{"dim", "hidden_size"},
     {"n_layers", "num_hidden_layers"},
     {"n_heads", "num_attention_heads"},
     {"n_kv_heads", "num_key_value_heads"},
     {"inter_dim", "intermediate_size"},
     {"moe_inter_dim", "moe_intermediate_size"},
     {"n_dense_layers", "first_k_dense_replace"},
     {"n_activated_experts", "num_experts_per_tok"},
     {"ffn_dim_multiplier", "intermediate_size"}}};

void refuse_native_names(HfFields& fields, const Value& root) {
    if (!fields.has("dim") || fields.has("hidden_size")) return;
    std::vector<std::string> pairs;
    for (const auto& [native, name] : native_names) {
        if (fields.has(native)) pairs.push_back(fmt::format("{} -> {}", native, name));
    }
    throw Error("not a Hugging Face config", root.where(), fmt::format("did you mean {}?", fmt::join(pairs, ", ")));
}

/// A field that a plain Llama does not have and that speaks of another block; empty when there is none.
std::string key_of_another_block(const HfFields& fields) {
    for (const std::string_view part :
         {"expert", "moe", "lora", "qk_norm", "qk_layernorm", "parallel", "alibi", "conv", "shared", "softcap"}) {
        std::string key = fields.key_containing(part);
        if (!key.empty()) return key;
    }
    return {};
}

/// The mark of a dumped LlamaConfig: it states all of these, and nothing that would change a block.
bool states_everything_a_llama_does(HfFields& fields) {
    for (const std::string_view name :
         {"attention_bias", "mlp_bias", "rms_norm_eps", "hidden_act", "tie_word_embeddings", "intermediate_size"}) {
        if (!fields.field({name})) return false;
    }
    return key_of_another_block(fields).empty() && fields.word("hidden_act") == "silu";
}

const HfFamily* family_without_class(HfFields& fields, ModelFile& model) {
    const bool latent = fields.field({"kv_lora_rank"}) != nullptr;
    const std::string key = key_of_another_block(fields);
    if (!latent && !key.empty()) {
        model.refusals.push_back(fmt::format("no model class is given, and {} is not a field of a plain one", key));
        return nullptr;
    }
    const HfFamily& family = latent ? deepseek_family() : llama_family();
    model.notes.push_back(fmt::format("no model class is given: read by its fields as {}", family.name));
    return &family;
}

const HfFamily* choose_family(HfFields& fields, ModelFile& model) {
    fields.words("architectures");  // of another type, they are a problem and not just absent
    fields.word("model_type");
    const FamilyMatch match = find_family(fields.class_names());
    for (const std::string_view other : {"Classification", "QuestionAnswering"}) {
        if (match.class_name.find(other) != std::string::npos) {
            model.notes.push_back(fmt::format("class {} is counted with a language-model head", match.class_name));
        }
    }
    if (match.other_spelling) {
        model.notes.push_back(fmt::format("class {} is read as {}", match.class_name, match.family->name));
    }
    if (match.family) return match.family;
    if (match.class_name.empty()) return family_without_class(fields, model);
    if (states_everything_a_llama_does(fields)) {
        model.notes.push_back(fmt::format("class {} is not known: read by its fields as Llama", match.class_name));
        return &llama_family();
    }
    model.refusals.push_back(fmt::format("model class {} is not known, so its structure is not", match.class_name));
    return nullptr;
}

void note_what_stands_beside(HfFields& fields, ModelFile& model) {
    if (!fields.section().empty()) model.notes.push_back(fmt::format("the language model is {}", fields.section()));
    if (fields.top_level_has_map("vision_config")) {
        model.notes.push_back("the vision tower (vision_config) is neither modelled nor counted");
    }
    if (fields.top_level_has_map("audio_config")) {
        model.notes.push_back("the audio tower (audio_config) is neither modelled nor counted");
    }
    const auto extra = fields.count({"num_nextn_predict_layers", "num_mtp_modules", "mtp_num_hidden_layers"});
    if (extra.value_or(0) > 0)
        model.notes.push_back(fmt::format("{} multi-token prediction layers are not counted", *extra));
    if (const Value* stored = fields.field({"quantization_config"})) {
        const Value* method = stored->is_map() ? find(*stored, "quant_method") : nullptr;
        model.notes.push_back(fmt::format("the checkpoint is stored quantized ({}); training precision is the recipe's",
                                          method ? method->text : "method not given"));
    }
    for (const std::string_view name : {"attn_logit_softcapping", "final_logit_softcapping"}) {
        if (fields.field({name})) model.notes.push_back(fmt::format("{} is not modelled", name));
    }
}

void add(std::vector<std::string>& to, std::vector<std::string> from) {
    to.insert(to.end(), std::make_move_iterator(from.begin()), std::make_move_iterator(from.end()));
}

std::string experts_sentence(HfFields& fields) {
    const auto top = fields.count({"num_experts_per_tok", "experts_per_token", "top_k_experts"});
    return fmt::format("mixture of experts: {} experts, top {}", expert_count(fields).value_or(0), top.value_or(0));
}

/// Sizes whose products would leave 64 bits are a slip of the pen, and would overflow the count.
void check_magnitude(HfFields& fields, const HfShape& shape) {
    const auto real = [](std::int64_t number) { return static_cast<double>(number); };
    const Transformer& model = shape.transformer;
    const double width = real(model.heads) * real(model.head_dim) * 4 + real(model.ffn) * 3;
    double block = real(model.hidden) * width;
    if (shape.experts) {
        const Experts& experts = *shape.experts;
        const double all = real(std::max(experts.count, experts.top_k)) * real(experts.width);
        block += 3 * real(model.hidden) * (all + real(experts.shared_width) + real(experts.dense_width));
    }
    if (shape.latent) {
        const LatentAttention& latent = *shape.latent;
        const double heads = real(model.heads) * real(latent.plain_dim + latent.rotary_dim + latent.value_dim);
        block += (real(model.hidden) + real(latent.query_rank) + real(latent.kv_rank)) * (heads + real(model.hidden));
    }
    const double total =
        real(model.layers) * block + 2 * real(model.hidden) * (real(model.vocabulary) + real(model.learned_positions));
    if (total > 1e17) fields.problem(fmt::format("the sizes multiply to {:.1e} parameters", total));
}

void count_parameters_of(HfFields& fields, const HfFamily& family, const HfShape& shape, ModelFile& model) {
    const bool deepseek = family.experts == ExpertStyle::deepseek || family.experts == ExpertStyle::deepseek_v3;
    const bool unknown_experts = shape.experts && family.experts == ExpertStyle::none;
    const bool unknown_latent = shape.latent && (!deepseek || shape.transformer.qkv_bias);
    if (unknown_experts || unknown_latent) {
        model.notes.push_back("parameters are not counted: this mixture of class and fields is not known");
        return;
    }
    Counts counts = count_sparse(shape.transformer, shape.experts, shape.latent);
    if (const std::int64_t cross = cross_attention_layers(fields)) {
        model.notes.push_back(fmt::format(
            "text side only; with self-attention in all layers it would be approximately {} parameters", counts.total));
        counts = count_with_cross_attention(shape.transformer, cross);
    }
    model.total_parameters = counts.total;
    model.active_parameters = counts.active;
}

}  // namespace

ModelFile import_hf_config(const Value& root, const std::string& name, const std::string& source) {
    if (!root.is_map()) {
        throw Error(fmt::format("not a Hugging Face config: it is {}, not a map of fields", shown(root)), root.where(),
                    "give the config.json of a model");
    }
    HfFields fields(root);
    refuse_native_names(fields, root);

    ModelFile model;
    model.name = model.transformer.name = name;
    model.source = source;
    const HfFamily* family = choose_family(fields, model);
    std::vector<std::string> foreign = foreign_structures(fields);
    note_what_stands_beside(fields, model);

    if (fields.list("block_configs")) {
        std::string summary;
        const Counts counts = count_blocks(fields, summary);
        model.refusals = {summary};
        model.total_parameters = counts.total;
        model.active_parameters = counts.active;
        return model;
    }
    if (!family || !foreign.empty()) {
        const std::int64_t layers = fields.count({"num_hidden_layers", "n_layer"}).value_or(0);
        add(model.refusals, std::move(foreign));
        if (expert_count(fields)) model.refusals.push_back(experts_sentence(fields));
        add(model.refusals, unusual_layers(fields, family, layers));
        model.notes.push_back("parameters are not counted");
        fields.check();
        return model;
    }

    const HfShape shape = read_shape(fields, *family);
    add(model.refusals, shape.refusals);
    add(model.notes, shape.notes);
    if (shape.experts) model.refusals.push_back(experts_sentence(fields));
    if (shape.experts && shape.experts->sinks) model.refusals.push_back("attention sinks");
    if (shape.latent) {
        model.refusals.push_back(fmt::format("multi-head latent attention (kv_lora_rank {})", shape.latent->kv_rank));
    }
    add(model.refusals, unusual_layers(fields, family, shape.transformer.layers));
    check_magnitude(fields, shape);
    fields.check();
    count_parameters_of(fields, *family, shape, model);
    model.transformer = shape.transformer;
    model.transformer.name = name;
    return model;
}

}  // namespace headroom
