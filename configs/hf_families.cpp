// SPDX-License-Identifier: Apache-2.0
#include "configs/hf_families.hpp"

#include <algorithm>
#include <cctype>

namespace headroom {
namespace {

// Defaults are those of the configuration classes in huggingface/transformers.
constexpr HfFamily families[]{
    {.name = "Llama", .classes = {"llama"}, .model_types = {"llama"}, .biases = Biases::flags},
    {.name = "Granite", .classes = {"granite"}, .model_types = {"granite"}, .biases = Biases::flags},
    {.name = "Mistral",
     .classes = {"mistral"},
     .model_types = {"mistral"},
     .needs_kv_heads = true,
     .default_window = 4096},
    {.name = "Phi-3", .classes = {"phi3"}, .model_types = {"phi3"}},
    {.name = "Qwen2",
     .classes = {"qwen2", "qwen2vl", "qwen2_5_vl"},
     .model_types = {"qwen2", "qwen2_vl", "qwen2_vl_text", "qwen2_5_vl", "qwen2_5_vl_text"},
     .biases = Biases::query_key_value,
     .needs_kv_heads = true,
     .window = WindowStyle::by_flag},
    {.name = "Qwen3",
     .classes = {"qwen3", "qwen3vl"},
     .model_types = {"qwen3", "qwen3_vl", "qwen3_vl_text"},
     .biases = Biases::flags,
     .qk_norm = QkNorm::per_head,
     .needs_kv_heads = true,
     .needs_head_dim = true,
     .window = WindowStyle::by_flag},
    {.name = "Gemma",
     .classes = {"gemma"},
     .model_types = {"gemma"},
     .tied = true,
     .biases = Biases::flags,
     .needs_kv_heads = true,
     .needs_head_dim = true},
    {.name = "Gemma 2",
     .classes = {"gemma2"},
     .model_types = {"gemma2"},
     .tied = true,
     .biases = Biases::flags,
     .norms_per_block = 4,
     .needs_kv_heads = true,
     .needs_head_dim = true,
     .window = WindowStyle::every_other,
     .default_window = 4096},
    {.name = "Gemma 3",
     .classes = {"gemma3"},
     .model_types = {"gemma3", "gemma3_text"},
     .tied = true,
     .biases = Biases::flags,
     .qk_norm = QkNorm::per_head,
     .norms_per_block = 4,
     .needs_kv_heads = true,
     .needs_head_dim = true,
     .window = WindowStyle::every_sixth_full,
     .default_window = 4096},
    {.name = "OLMo 2",
     .classes = {"olmo2"},
     .model_types = {"olmo2"},
     .biases = Biases::flags,
     .qk_norm = QkNorm::full_width},
    {.name = "OLMo 3",
     .classes = {"olmo3"},
     .model_types = {"olmo3"},
     .biases = Biases::flags,
     .qk_norm = QkNorm::full_width,
     .window = WindowStyle::every_fourth_full,
     .default_window = 4096},
    {.name = "GPT-2",
     .classes = {"gpt2"},
     .model_types = {"gpt2"},
     .tied = true,
     .biases = Biases::all,
     .mlp = MlpKind::plain,
     .norm = NormKind::layer},
    {.name = "GPT-BigCode",
     .classes = {"gptbigcode"},
     .model_types = {"gpt_bigcode"},
     .tied = true,
     .biases = Biases::all,
     .mlp = MlpKind::plain,
     .norm = NormKind::layer},
    {.name = "GPT-NeoX",
     .classes = {"gptneox"},
     .model_types = {"gpt_neox"},
     .biases = Biases::all,
     .mlp = MlpKind::plain,
     .norm = NormKind::layer},
    {.name = "Falcon",
     .classes = {"falcon", "rw"},
     .model_types = {"falcon", "refinedweb", "refinedwebmodel"},
     .tied = true,
     .biases = Biases::bias_flag,
     .mlp = MlpKind::plain,
     .norm = NormKind::layer},
    // Counted, but not planned.
    {.name = "Mixtral",
     .classes = {"mixtral"},
     .model_types = {"mixtral"},
     .needs_kv_heads = true,
     .experts = ExpertStyle::mixtral},
    {.name = "Qwen2-MoE",
     .classes = {"qwen2moe"},
     .model_types = {"qwen2_moe"},
     .biases = Biases::query_key_value,
     .needs_kv_heads = true,
     .experts = ExpertStyle::qwen,
     .window = WindowStyle::by_flag},
    {.name = "Qwen3-MoE",
     .classes = {"qwen3moe", "qwen3vlmoe"},
     .model_types = {"qwen3_moe", "qwen3_vl_moe", "qwen3_vl_moe_text"},
     .biases = Biases::flags,
     .qk_norm = QkNorm::per_head,
     .needs_kv_heads = true,
     .experts = ExpertStyle::qwen,
     .window = WindowStyle::by_flag},
    {.name = "gpt-oss",
     .classes = {"gptoss"},
     .model_types = {"gpt_oss"},
     .biases = Biases::attention,
     .needs_kv_heads = true,
     .needs_head_dim = true,
     .experts = ExpertStyle::gpt_oss,
     .window = WindowStyle::every_other,
     .default_window = 128},
    {.name = "DeepSeek-V2",
     .classes = {"deepseekv2"},
     .model_types = {"deepseek_v2"},
     .biases = Biases::flags,
     .experts = ExpertStyle::deepseek},
    {.name = "DeepSeek-V3",
     .classes = {"deepseekv3"},
     .model_types = {"deepseek_v3", "kimi_k2"},
     .biases = Biases::flags,
     .experts = ExpertStyle::deepseek_v3},
    {.name = "Llama 4",
     .classes = {"llama4"},
     .model_types = {"llama4", "llama4_text"},
     .biases = Biases::flags,
     .needs_kv_heads = true,
     .experts = ExpertStyle::llama4,
     .window = WindowStyle::chunks},
    {.name = "MiniMax-M2",
     .classes = {"minimaxm2"},
     .model_types = {"minimax_m2"},
     .qk_norm = QkNorm::full_width,
     .needs_kv_heads = true,
     .needs_head_dim = true,
     .experts = ExpertStyle::minimax},
    {.name = "Llama 3.2 Vision",
     .classes = {"mllama"},
     .model_types = {"mllama", "mllama_text_model"},
     .needs_kv_heads = true,
     .needs_lists = {"cross_attention_layers"}},
    {.name = "Nemotron-NAS", .classes = {"decilm"}, .model_types = {"nemotron-nas"}, .needs_lists = {"block_configs"}},
};

/// `LlamaForCausalLM`, `GPT2LMHeadModel`, `LlamaModel` -> `Llama`, `GPT2`, `Llama`; model types stay as they are.
std::string stem(const std::string& name) {
    for (const std::string_view ending : {"For", "LMHead", "Model"}) {
        const std::size_t at = name.find(ending);
        if (at != std::string::npos && at > 0) return name.substr(0, at);
    }
    return name;
}

std::string lower(std::string text) {
    for (char& c : text) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    return text;
}

template <std::size_t count>
bool holds(const std::array<std::string_view, count>& names, const std::string& name) {
    return !name.empty() && std::find(names.begin(), names.end(), name) != names.end();
}

}  // namespace

FamilyMatch find_family(const std::vector<std::string>& class_names) {
    for (const std::string& name : class_names) {
        for (const HfFamily& family : families) {
            if (holds(family.model_types, lower(name)) || holds(family.classes, lower(stem(name)))) {
                return {&family, name, name.starts_with("LLaMA")};
            }
        }
    }
    return {nullptr, class_names.empty() ? "" : class_names.front(), false};
}

const HfFamily& llama_family() { return families[0]; }

const HfFamily& deepseek_family() {
    return *std::find_if(std::begin(families), std::end(families),
                         [](const HfFamily& family) { return family.experts == ExpertStyle::deepseek; });
}

}  // namespace headroom
