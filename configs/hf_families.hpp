// SPDX-License-Identifier: Apache-2.0
// What a model class says by its name alone: the structure and the defaults that its config.json leaves out.
#pragma once

#include <array>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "models/transformer.hpp"

namespace headroom {

/// Which linear layers have a bias.
enum class Biases {
    none,
    flags,            ///< attention_bias: q, k, v and output; mlp_bias: MLP; false when absent
    attention,        ///< the same, attention_bias true when absent
    query_key_value,  ///< always q, k and v (Qwen2)
    all,              ///< every linear layer (GPT-2)
    bias_flag,        ///< `bias`: every linear layer (Falcon)
};

enum class ExpertStyle { none, mixtral, qwen, gpt_oss, deepseek, deepseek_v3, llama4, minimax };

/// Which layers see only a window, when there are no layer_types.
enum class WindowStyle {
    by_value,     ///< all layers when sliding_window has a value
    by_flag,      ///< layers from max_window_layers on, when use_sliding_window is true
    every_other,  ///< the first, the third, ...
    every_sixth_full,
    every_fourth_full,
    chunks,  ///< Llama 4: attention_chunk_size, three of four layers
};

struct HfFamily {
    std::string_view name;
    std::array<std::string_view, 5> classes;      ///< `Llama` of LlamaForCausalLM, lower case
    std::array<std::string_view, 6> model_types;  ///< model_type, lower case
    bool tied = false;                            ///< tie_word_embeddings when absent
    Biases biases = Biases::none;
    QkNorm qk_norm = QkNorm::none;
    int norms_per_block = 2;
    MlpKind mlp = MlpKind::gated;
    NormKind norm = NormKind::rms;
    bool needs_kv_heads = false;  ///< the class has a number of its own when the field is absent
    bool needs_head_dim = false;  ///< the same for head_dim: never hidden/heads
    ExpertStyle experts = ExpertStyle::none;
    WindowStyle window = WindowStyle::by_value;
    int default_window = 0;                         ///< sliding_window when the field is absent
    std::array<std::string_view, 1> needs_lists{};  ///< lists without which the layers are not known
};

struct FamilyMatch {
    const HfFamily* family = nullptr;
    std::string class_name;  ///< as the file writes it
    bool other_spelling = false;
};

/// The family of the first name that is known; names are architectures or model types.
FamilyMatch find_family(const std::vector<std::string>& class_names);
/// The family that fields without any class name are read as.
const HfFamily& llama_family();
const HfFamily& deepseek_family();

}  // namespace headroom
