// SPDX-License-Identifier: Apache-2.0
// The model being trained: a dense decoder with full causal attention.
#pragma once

#include <cstdint>
#include <string>

namespace headroom {

enum class MlpKind {
    gated,  ///< three matrices: down(act(gate x) * up x)
    plain,  ///< two matrices: down(act(up x))
};
enum class NormKind { rms, layer };  ///< a LayerNorm has a bias beside its weight
enum class QkNorm {
    none,
    per_head,    ///< one weight of head_dim for queries, one for keys (Qwen3)
    full_width,  ///< weights as wide as all query and all key heads (OLMo)
};

/// Shapes of a decoder-only transformer. Everything that changes a parameter count or an activation is here;
/// what the planner does not model (experts, latent attention, windows) never becomes a Transformer.
struct TransformerShape {
    std::int64_t layers = 0;
    std::int64_t hidden = 0;    ///< D
    std::int64_t heads = 0;     ///< H, query heads
    std::int64_t kv_heads = 0;  ///< Hkv
    std::int64_t head_dim = 0;  ///< d; H*d need not equal D
    std::int64_t ffn = 0;       ///< F, width of the MLP
    std::int64_t vocabulary = 0;
    MlpKind mlp = MlpKind::gated;
    NormKind norm = NormKind::rms;
    QkNorm qk_norm = QkNorm::none;
    int norms_per_block = 2;
    bool tied_embeddings = false;
    bool qkv_bias = false;
    bool output_bias = false;
    bool mlp_bias = false;
    double rotary_fraction = 1.0;        ///< share of head_dim that is rotated
    std::int64_t max_positions = 0;      ///< what the model was trained for; 0 when the config does not say
    std::int64_t learned_positions = 0;  ///< rows of a learned position table (GPT-2); 0 with rotary

    std::int64_t group() const { return heads / kv_heads; }        ///< g, queries per KV head
    std::int64_t query_width() const { return heads * head_dim; }  ///< H*d
    std::int64_t kv_width() const { return kv_heads * head_dim; }  ///< Hkv*d
    /// Weights of the norm of queries or of keys, which have `of_heads` heads.
    std::int64_t qk_norm_width(std::int64_t of_heads) const {
        if (qk_norm == QkNorm::none) return 0;
        return qk_norm == QkNorm::per_head ? head_dim : of_heads * head_dim;
    }
    std::int64_t qk_norm_weights() const { return qk_norm_width(heads) + qk_norm_width(kv_heads); }
};

struct Transformer : TransformerShape {
    std::string name;
};

/// Number of parameters, exact. A tied head is counted once, in `embedding`.
struct ParameterCount {
    std::int64_t query = 0;      ///< wq and its bias, one block
    std::int64_t key_value = 0;  ///< wk and wv and their biases
    std::int64_t output = 0;     ///< wo
    std::int64_t mlp = 0;        ///< all MLP matrices of a block
    std::int64_t norms = 0;      ///< norms of a block, QK norms included
    std::int64_t embedding = 0;  ///< V*D (and learned positions)
    std::int64_t final_norm = 0;
    std::int64_t head = 0;  ///< V*D, or 0 when tied
    std::int64_t layers = 0;

    std::int64_t attention() const { return query + key_value + output; }
    std::int64_t block() const { return attention() + mlp + norms; }     ///< Pl
    std::int64_t root() const { return embedding + final_norm + head; }  ///< Pr
    std::int64_t total() const { return layers * block() + root(); }     ///< P
};

ParameterCount count_parameters(const TransformerShape& model);

}  // namespace headroom
