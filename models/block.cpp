// SPDX-License-Identifier: Apache-2.0
#include "models/block.hpp"

#include <algorithm>

#include "models/mlp_tiles.hpp"

namespace headroom {
namespace {

/// Tokens per MLP tile. Megatron-DeepSpeed's FPDT halves the attention chunk (transformer.py:170).
Tiles mlp_tiles(const Workload& work) {
    const Recipe& recipe = work.recipe;
    if (recipe.implementation == Implementation::megatron_deepspeed &&
        recipe.tiling.mlp.kind == Tiling::Kind::automatic) {
        const Tiling half{Tiling::Kind::tokens,
                          std::max<std::int64_t>(1, recipe.chunk_tokens.value / recipe.context_parallel() / 2)};
        return tiles_of(half, work.tokens, work.model.hidden);
    }
    return tiles_of(recipe.tiling.mlp, work.tokens, work.model.hidden);
}

std::int64_t wide_matrices(const Workload& work) { return work.gated() ? 2 : 1; }

/// One FFN-wide tensor over `rows` rows, E.
Bytes ffn_wide(const Workload& work, std::int64_t rows) { return {work.element * rows * work.model.ffn}; }

/// FFN-wide tensors of an untiled MLP. Eager: gate, act(gate), up and their product stay for backward, three of them
/// are ever alive without one; Liger does without act(gate).
std::int64_t kept_widths(const Step& step, bool keep) {
    if (!step.work.gated()) return 2;
    return keep && !step.traits.liger_mlp ? 4 : 3;
}

void mlp_gemms(Step& step, const Tiles& tiles) {
    const TransformerShape& model = step.work.model;
    step.to.gemm("MLP in", tiles.tokens, model.ffn, model.hidden, tiles.count * wide_matrices(step.work));
    step.to.gemm("MLP out", tiles.tokens, model.hidden, model.ffn, tiles.count);
}

void activation_forward(Step& step, std::int64_t launches) {
    const Bytes wide = ffn_wide(step.work, step.work.tokens);
    if (step.traits.eager_activation) {
        step.eager("MLP activation", (step.work.gated() ? 5 : 2) * wide, 2 * launches);
    } else {
        step.eager("MLP activation", (step.work.gated() ? 3 : 2) * wide, launches);
    }
}

/// Each tile's forward again, and its backward.
void activation_again_and_backward(Step& step, std::int64_t launches) {
    const Bytes wide = ffn_wide(step.work, step.work.tokens);
    const char* name = "MLP activation again and backward";
    if (step.traits.eager_activation) {
        step.eager(name, (step.work.gated() ? 14 : 5) * wide + 7 * step.work.hidden, 8 * launches);
    } else {
        step.eager(name, (step.work.gated() ? 8 : 5) * wide, 2 * launches);
    }
}

void add_residual(Step& step, View a, View b, View sum) {
    step.eager("add residual", 3 * step.work.hidden);
    step.to.computes(Sum{a, b, sum, step.work.tokens * step.work.model.hidden});
}

}  // namespace

TensorId mlp_forward(Step& step, BlockKept& kept, bool keep, View in) {
    const Workload& work = step.work;
    const Tiles tiles = mlp_tiles(work);
    const Bytes wide = ffn_wide(work, tiles.tokens);
    if (!tiles.tiled) {
        const TensorId inner = step.to.allocate("MLP gate, up and product", Group::mlp, kept_widths(step, keep) * wide);
        mlp_gemms(step, tiles);
        activation_forward(step, 1);
        const TensorId result = step.to.allocate("MLP output", Group::mlp, work.hidden);
        if (keep) {
            kept.mlp_inner = inner;
        } else {
            step.release(inner);
        }
        return result;
    }
    const bool joins = step.traits.tile_concatenation || step.traits.megatron;
    const TensorId list = step.to.allocate(joins ? "MLP output tiles" : "MLP output", Group::mlp, work.hidden);
    TensorId result = list;
    if (step.traits.megatron) result = step.to.allocate("MLP output", Group::mlp, work.hidden);
    const TensorId inner =
        step.to.allocate("MLP tile", Group::mlp, (step.traits.megatron ? 4 : wide_matrices(work) + 1) * wide);
    if (step.to.describing()) {
        describe_mlp_forward(step, tiles, in, inner, result);
    } else {
        mlp_gemms(step, tiles);
        activation_forward(step, tiles.count);
    }
    step.release(inner);
    if (step.traits.tile_concatenation) {
        result = step.to.allocate("MLP output", Group::mlp, work.hidden);
        step.copy("concatenate MLP tiles", 2 * work.hidden);
    }
    if (joins) step.release(list);
    return result;
}

TensorId mlp_backward(Step& step, BlockKept& kept, View gradient) {
    const Workload& work = step.work;
    const TransformerShape& model = work.model;
    const Tiles tiles = mlp_tiles(work);
    const Bytes wide = ffn_wide(work, tiles.tokens);
    const std::int64_t matrix = model.hidden * model.ffn;
    const std::int64_t in_matrices = wide_matrices(work);
    const auto gradient_gemms = [&] {
        step.to.gemm("MLP out, input gradient", tiles.tokens, model.ffn, model.hidden, tiles.count);
        step.to.gemm("MLP out, weight gradient", model.hidden, model.ffn, tiles.tokens, tiles.count);
        step.to.gemm("MLP in, input gradient", tiles.tokens, model.hidden, model.ffn, tiles.count * in_matrices);
        step.to.gemm("MLP in, weight gradient", model.ffn, model.hidden, tiles.tokens, tiles.count * in_matrices);
    };
    const Bytes whole = ffn_wide(work, work.tokens);
    if (!tiles.tiled) {
        // Liger writes the gradients of gate and up over them and needs that of their product only.
        const TensorId down =
            step.to.allocate("MLP gradients of gate and up", Group::mlp, (step.traits.liger_mlp ? 1 : 2) * wide);
        step.weight_gradient("gradients of MLP weights", work.parameters.mlp);
        gradient_gemms();
        step.eager("MLP activation backward", (work.gated() ? 9 : 3) * whole, 3);
        step.release(kept.mlp_inner, down);
        kept.mlp_inner = no_tensor;
        const TensorId result = step.to.allocate("gradient of MLP input", Group::mlp, work.hidden);
        step.eager("add MLP input gradients", 3 * work.hidden);
        return result;
    }
    if (step.traits.megatron) {
        // Gradients of the weights in fp32, cast at the end; the input's gradient overwrites the saved input.
        const TensorId sums =
            step.to.allocate("gradients of MLP weights, fp32", Group::gradients, {4 * (in_matrices + 1) * matrix});
        const TensorId tile = step.to.allocate("MLP tile", Group::mlp, 8 * wide);
        mlp_gemms(step, tiles);
        gradient_gemms();
        step.eager("MLP activation again and backward", 39 * whole + Bytes{30 * matrix * tiles.count}, 8 * tiles.count);
        step.release(tile);
        step.weight_gradient("gradients of MLP weights", work.parameters.mlp);
        step.release(sums);
        return no_tensor;
    }
    // Each tile runs again with gradients: gate, act(gate), up, product, the product's gradient and one weight gradient
    // to be added to the last ones, beside the tile's output.
    const TensorId result = step.to.allocate("gradient of MLP input", Group::mlp, work.hidden);
    const TensorId tile = step.to.allocate("MLP tile", Group::mlp, (work.gated() ? 5 : 3) * wide);
    const TensorId output =
        step.to.allocate("MLP tile output", Group::mlp, {work.element * tiles.tokens * model.hidden});
    step.weight_gradient("gradients of MLP weights", work.parameters.mlp);
    const TensorId added =
        step.to.allocate("gradient of one MLP weight, to be added", Group::gradients, work.weights(matrix));
    if (step.to.describing()) {
        const MlpGradients into{result, output, step.weight_gradients.back(), added};
        describe_mlp_backward(step, tiles, {kept.normed_residual, gradient}, tile, into);
        step.release(tile, output, added);
        return result;
    }
    mlp_gemms(step, tiles);
    gradient_gemms();
    activation_again_and_backward(step, tiles.count);
    step.to.memory_bound("add MLP weight gradients", MemoryKernel::eager,
                         work.weights(2 * matrix * (in_matrices + 1)) * (tiles.count - 1),
                         work.weights(matrix * (in_matrices + 1)) * (tiles.count - 1), 3 * (tiles.count - 1));
    step.release(tile, output, added);
    return result;
}

namespace {

/// To fp32, squares, product, back to 16 bits, times the weight: each a kernel with a tensor of its own.
TensorId eager_norm_forward(Step& step, const char* name, NormKept* kept) {
    const Bytes rows = step.work.hidden;
    const TensorId wide = step.to.allocate("norm input, fp32", Group::norm, 2 * rows);
    step.release(step.to.allocate("norm: squares, fp32", Group::norm, 2 * rows));
    const TensorId product = step.to.allocate("norm: product, fp32", Group::norm, 2 * rows);
    if (kept == nullptr) step.release(wide);
    const TensorId normed = step.to.allocate("norm, before the weight", Group::norm, rows);
    step.release(product);
    const TensorId result = step.to.allocate(name, Group::norm, rows);
    step.eager(name, 18 * rows, 6);
    if (kept == nullptr) {
        step.release(normed);
    } else {
        *kept = {wide, normed};
    }
    return result;
}

/// Three fp32 tensors at once: the gradient through the product, that through the squares, and a factor of either.
TensorId eager_norm_backward(Step& step, const char* name, const NormKept& kept) {
    const Bytes rows = step.work.hidden;
    step.weight_gradient("gradient of norm weight", step.work.model.hidden);
    const TensorId wide = step.to.allocate("norm backward, fp32", Group::norm, 6 * rows);
    const TensorId result = step.to.allocate(name, Group::norm, rows);
    step.eager(name, 34 * rows, 10);
    step.release(wide, kept.wide, kept.normed);
    return result;
}

bool has_eager_norm(const Step& step) { return step.traits.eager_norms && step.work.model.norm == NormKind::rms; }

}  // namespace

TensorId norm_forward(Step& step, const char* name, const NormOperands& of, NormKept* kept) {
    if (has_eager_norm(step)) return eager_norm_forward(step, name, kept);
    const Workload& work = step.work;
    const Tiles tiles = tiles_of(work.recipe.tiling.norm, work.tokens, work.model.hidden);
    const bool joins = tiles.tiled && step.traits.tile_concatenation;
    TensorId result = step.to.allocate(joins ? "norm tiles" : name, Group::norm, work.hidden);
    step.to.memory_bound(name, MemoryKernel::norm_forward, work.hidden, work.hidden, tiles.count);
    step.to.computes(Norm{of.in, of.weight, result, work.tokens, work.model.hidden});
    if (joins) {
        const TensorId joined = step.to.allocate(name, Group::norm, work.hidden);
        step.copy("concatenate norm tiles", 2 * work.hidden);
        step.release(result);
        result = joined;
    }
    return result;
}

TensorId norm_backward(Step& step, const char* name, const NormOperands& of, View gradient, const NormKept& kept,
                       TensorId as) {
    if (has_eager_norm(step)) return eager_norm_backward(step, name, kept);
    const Workload& work = step.work;
    const Tiles tiles = tiles_of(work.recipe.tiling.norm, work.tokens, work.model.hidden);
    const TensorId result =
        step.to.allocate_again(as == no_tensor ? step.to.reserve() : as, name, Group::norm, work.hidden);
    const TensorId weight_gradient = step.weight_gradient(
        "gradient of norm weight", work.model.hidden * (work.model.norm == NormKind::layer ? 2 : 1));
    if (tiles.tiled && step.traits.tile_concatenation) {
        // Zeros, each tile forward again and backward, accumulated into its slice.
        const Bytes rows{work.element * tiles.tokens * work.model.hidden};
        const TensorId tile =
            step.to.allocate("norm tile, again and its gradient", Group::norm, 2 * rows + Bytes{4 * tiles.tokens});
        step.eager("zero norm gradient", work.hidden);
        step.to.memory_bound("norm again", MemoryKernel::norm_forward, work.hidden, work.hidden, tiles.count);
        step.to.memory_bound(name, MemoryKernel::norm_backward, 2 * work.hidden, work.hidden, tiles.count);
        step.eager("accumulate norm tiles", 3 * work.hidden, tiles.count);
        step.release(tile);
    } else {
        step.to.memory_bound(name, MemoryKernel::norm_backward, 2 * work.hidden, work.hidden, tiles.count);
        step.to.computes(
            NormBackward{of.in, of.weight, gradient, result, weight_gradient, work.tokens, work.model.hidden});
    }
    return result;
}

void block_forward(Step& step, BlockKept& kept, bool keep) {
    const Workload& work = step.work;
    const Operands& from = step.operands;
    const TensorId normed = norm_forward(step, "normed block input", {from.block_input, from.input_norm},
                                         keep ? &kept.input_norm : nullptr);
    step.operands.input = normed;
    kept.attention = attention_forward(step, keep);
    // FPDT's attention keeps its chunks of the normed input on the host.
    if (keep && !work.recipe.offload.chunks) {
        kept.normed_input = normed;
    } else {
        step.release(normed);
    }
    const TensorId residual = step.to.allocate("residual after attention", Group::residual, work.hidden);
    add_residual(step, from.block_input, kept.attention.result, residual);
    // Megatron's layer keeps the attention output in a local until it returns.
    if (!step.traits.megatron) step.release(kept.attention.result);

    const TensorId normed_residual =
        norm_forward(step, "normed residual", {residual, from.residual_norm}, keep ? &kept.residual_norm : nullptr);
    kept.residual = residual;
    kept.mlp_output = mlp_forward(step, kept, keep, normed_residual);
    if (keep) {
        kept.normed_residual = normed_residual;
    } else {
        step.release(normed_residual);
    }
    if (step.traits.megatron) step.release(kept.attention.result);
}

void block_output(Step& step, BlockKept& kept, bool keep, TensorId output, Group output_group) {
    if (output != no_tensor) {
        step.to.allocate_again(output, output_group == Group::saved ? "block input" : "block output", output_group,
                               step.work.hidden);
        add_residual(step, kept.residual, kept.mlp_output, output);
    }
    step.release(kept.mlp_output);
    if (!keep) step.release(kept.residual);
}

void block_forward(Step& step, BlockKept& kept, bool keep, TensorId output, Group output_group) {
    block_forward(step, kept, keep);
    block_output(step, kept, keep, output, output_group);
}

void block_backward(Step& step, BlockKept& kept, TensorId gradient) {
    const Workload& work = step.work;
    const Operands& from = step.operands;
    const bool holds_gradient = step.traits.reentrant_checkpoints && work.recipe.checkpointing == Checkpointing::full;
    TensorId mlp_gradient = mlp_backward(step, kept, gradient);
    if (mlp_gradient == no_tensor) {
        mlp_gradient = kept.normed_residual;  // written over the saved input
    } else {
        step.release(kept.normed_residual);
    }
    const TensorId through_norm = norm_backward(step, "gradient of residual, through norm",
                                                {kept.residual, from.residual_norm}, mlp_gradient, kept.residual_norm);
    step.release(kept.residual, mlp_gradient);
    const TensorId residual_gradient = step.to.allocate("gradient of residual", Group::residual, work.hidden);
    add_residual(step, gradient, through_norm, residual_gradient);
    if (!holds_gradient) step.release(gradient);
    step.release(through_norm);

    step.operands.input = kept.normed_input;
    step.operands.result_gradient = residual_gradient;
    const TensorId attention_gradient = attention_backward(step, kept.attention);
    const TensorId input_through_norm =
        norm_backward(step, "gradient of block input, through norm", {from.block_input, from.input_norm},
                      attention_gradient, kept.input_norm);
    step.release(kept.normed_input, attention_gradient);
    if (holds_gradient) step.release(gradient);
    step.to.allocate_again(gradient, "gradient of block output", Group::residual, work.hidden);
    add_residual(step, residual_gradient, input_through_norm, gradient);
    step.release(residual_gradient, input_through_norm);
}

}  // namespace headroom
