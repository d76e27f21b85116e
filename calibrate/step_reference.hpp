// SPDX-License-Identifier: Apache-2.0
// One training step of a small model over one whole sequence, in double precision: the loss, the gradients of all
// weights, and AdamW. Blocks of RMSNorm, grouped attention with rotary embedding (and QK norm before it), residual,
// RMSNorm, gated MLP, residual, between an embedding and a final norm with a head, tied or not; the loss is the mean
// over the tokens.
#pragma once

#include <span>

#include "calibrate/arithmetic.hpp"
#include "calibrate/reference_parts.hpp"

namespace headroom {

/// A number for every weight of a model, flat in the order of models/weights.hpp.
struct ModelWeights {
    std::vector<ReferenceValues> blocks;
    ReferenceValues root;  ///< of what stands around the blocks
};
/// All zero.
ModelWeights weights_like(const TransformerShape& model);

/// One tensor among the weights: of every block, or of the root.
struct WeightKind {
    const char* name;
    bool of_block;
    std::int64_t offset, size;  ///< in elements of the flat block or root
    std::int64_t inputs;        ///< columns of a matrix that is multiplied with; 1 for an embedding alone, 0 for norms

    /// Its elements in `weights`, block by block.
    std::vector<std::span<double>> in(ModelWeights& weights) const;
    std::vector<std::span<const double>> in(const ModelWeights& weights) const;
};
/// input norm, wq, wk, wv, wo, residual norm, gate, up, down, embedding, final norm; an untied head; query and key
/// norm.
std::vector<WeightKind> weight_kinds(const TransformerShape& model);

/// One sequence, and the token that follows each of its tokens.
struct StepTokens {
    std::vector<std::int64_t> tokens, labels;
};

double step_loss(const TransformerShape& model, const StepTokens& text, const ModelWeights& weights);
/// Of the loss, with respect to every weight.
ModelWeights step_gradients(const TransformerShape& model, const StepTokens& text, const ModelWeights& weights);

/// A weight and its moments after the first step of AdamW, from moments of zero.
struct AdamResult {
    double parameter, first_moment, second_moment;
};
AdamResult first_adam_step(double parameter, double gradient);

/// What a check of a step starts from and what must come out of it, the same for every case of one model and context.
struct StepReference {
    /// Random weights that bf16 holds exactly, of the usual sizes: norms about 1, an embedding and projections of unit
    /// variance; random tokens.
    StepReference(const TransformerShape& shape, std::int64_t context);

    TransformerShape model;
    StepTokens text;
    ModelWeights weights, gradients;
    double loss;
};

}  // namespace headroom
