// SPDX-License-Identifier: Apache-2.0
// The end of the forward pass: final norm, language-model head and cross-entropy, and their backward.
#pragma once

#include "models/block.hpp"

namespace headroom {

/// What the loss leaves for backward.
struct LossKept {
    TensorId normed = no_tensor;
    TensorId input_gradient = no_tensor;   ///< of the normed hidden state, computed in forward by a fused loss
    TensorId weight_gradient = no_tensor;  ///< of the head; lives until the root group is reduced
    TensorId log_probabilities = no_tensor;
    NormKept norm;
};

/// What the loss reads; given only where the schedule is described.
struct LossOperands {
    View hidden, final_norm, head, labels;
    float weight = 1;  ///< of each row's loss
};

/// The hidden state before the final norm is alive and stays.
LossKept loss_forward(Step& step, const LossOperands& of = {});
/// Leaves the gradient of the last block's output under the id `gradient`. `hidden` is freed.
void loss_backward(Step& step, LossKept& kept, TensorId hidden, TensorId gradient, const LossOperands& of = {});

}  // namespace headroom
