// SPDX-License-Identifier: Apache-2.0
// One transformer block around the attention method: norms, residuals and the MLP, forwards and backwards.
#pragma once

#include "models/methods/method.hpp"

namespace headroom {

/// What an eager norm of Hugging Face leaves for its backward.
struct NormKept {
    TensorId wide = no_tensor;    ///< its input, fp32
    TensorId normed = no_tensor;  ///< before the weight
};

/// What a block leaves for its backward, beside its input.
struct BlockKept {
    TensorId normed_input = no_tensor;
    NormKept input_norm, residual_norm;
    TensorId residual = no_tensor;  ///< h = x + attention
    TensorId normed_residual = no_tensor;
    TensorId mlp_inner = no_tensor;   ///< gate, activation, up, product of an untiled MLP
    TensorId mlp_output = no_tensor;  ///< until the last addition
    Kept attention;
};

/// What a norm reads.
struct NormOperands {
    View in, weight;
};

/// y = RMSNorm(x) over `step.work.tokens` rows of width D, tiled as the recipe says. Returns y. With `kept`, an
/// eager norm leaves its tensors there.
TensorId norm_forward(Step& step, const char* name, const NormOperands& of = {}, NormKept* kept = nullptr);
/// Gradient of the norm's input, under the id `as` where one is given; frees `kept` and nothing else.
TensorId norm_backward(Step& step, const char* name, const NormOperands& of = {}, View gradient = {},
                       const NormKept& kept = {}, TensorId as = no_tensor);

/// Gated or plain MLP over the rows of the rank, in tiles as the recipe says. With `keep`, an untiled MLP leaves its
/// inner tensors in `kept`. Returns the output.
TensorId mlp_forward(Step& step, BlockKept& kept, bool keep, View in = {});
/// Gradient of the MLP's input, or no_tensor where it overwrites the saved input (Megatron-DeepSpeed).
TensorId mlp_backward(Step& step, BlockKept& kept, View gradient = {});

/// Forward of a block up to its last addition; its input is alive and stays so. With `keep` all that backward needs
/// stays in `kept`.
void block_forward(Step& step, BlockKept& kept, bool keep);
/// The last addition. The output is one more tensor under the id `output`, named as the next block's input will be. A
/// recomputation stops where a checkpoint's does, before it: pass no_tensor.
void block_output(Step& step, BlockKept& kept, bool keep, TensorId output, Group output_group);

/// Both: a whole forward.
void block_forward(Step& step, BlockKept& kept, bool keep, TensorId output, Group output_group);

/// Backward of a block: turns the gradient of its output, alive under the id `gradient`, into that of its input under
/// the same id, and frees `kept`.
void block_backward(Step& step, BlockKept& kept, TensorId gradient);

}  // namespace headroom
