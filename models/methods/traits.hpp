// SPDX-License-Identifier: Apache-2.0
// What a shipped implementation does beside the algorithm. `lean` has none of these.
#pragma once

#include "models/recipe.hpp"

namespace headroom {

struct Traits {
    /// Rotary embedding as an eager complex fp32 product: 12 bytes an element at once for q and k
    /// (Untied-Ulysses model.py:202-228).
    bool eager_rotary = false;
    /// The caller keeps q, k, v alive that went into the all-to-all until attention returns
    /// (long-context-attention hybrid/attn_layer.py:110-161: Python locals).
    bool keeps_sent = false;
    /// The all-to-all helper copies even when there is nothing to exchange (same file, Ulysses degree 1).
    bool copies_alone = false;
    /// Native context parallel repeats K and V to all query heads first (model.py:446-453), and moves them so.
    bool repeats_kv_heads = false;
    /// The MLP's activation is a chain of kernels, act(gate) and its product with up, and autograd adds the gradients
    /// of its input by kernels of their own.
    bool eager_activation = false;
    /// Liger's SwiGLU: act(gate) is not kept, and the gradients of gate and up overwrite them.
    bool liger_mlp = false;
    /// A contiguous copy before an all-to-all, and one after the exchange back (comm/all_to_all.py:15-134).
    bool exchange_copies = false;
    /// Attention output converted to fp32 and back even without a ring (zigzag_ring_flash_attn.py; ring/utils.py).
    bool fp32_output = false;
    /// dq, dk, dv converted to fp32, and dk, dv sent to the rank itself, even without a ring (same file, l.79-183).
    bool fp32_gradients = false;
    /// Ring merge as separate eager kernels, with their temporaries (TorchScript not fused).
    bool eager_merge = false;
    /// Tiled norm and MLP gather their tiles in a list and concatenate it (ulysses_sp.py:880-1011): twice the output.
    bool tile_concatenation = false;
    /// The input gradients of UPipe's stages are added by kernels of their own, not by the product that makes them.
    bool adds_input_gradients = false;
    /// UPipe permutes the heads of the whole output with an index copy (model.py:416-428).
    bool head_permutation = false;
    /// The rotary table is built for the whole context on every rank and never shrinks (train.py:377-395).
    bool full_rotary_table = false;
    /// Checkpoints save the rotary table beside the block input, and move it with it (checkpoint_wrapper.py:195-229).
    bool offloads_rotary = false;
    /// Block 0 keeps its input on the device (AC_LAYER_STRIDE: every block with index % 1000 != 0 is offloaded).
    bool first_block_stays = false;
    /// The norms, MLP and loss of Megatron-DeepSpeed's FPDT, and its reentrant checkpoints.
    bool megatron = false;
    /// Without Liger's kernels, Hugging Face's norm keeps an fp32 copy of its input and the 16-bit product before the
    /// weight (transformers, modeling_llama.py: LlamaRMSNorm.forward).
    bool eager_norms = false;
    /// q, k and v are copied once more behind the all-to-all, to [batch, heads, tokens, dim]
    /// (DeepSpeed ulysses_sp.py: UlyssesSPAttentionHF.forward).
    bool contiguous_again = false;
    /// Reentrant checkpoints hold a block's output and its gradient until the block's backward returns
    /// (torch.utils.checkpoint, CheckpointFunction.backward; DeepSpeed's own, checkpointing.py).
    bool reentrant_checkpoints = false;
    /// Gradients of the weights of a block are whole tensors until they are reduced.
    bool whole_weight_gradients = true;
};

constexpr Traits traits_of(const Recipe& recipe) {
    const Implementation implementation = recipe.implementation;
    // ArcticTraining's "liger" models: the fused loss comes with Liger's norms, and its MLP unless that is tiled
    // (liger_factory.py). Its "huggingface" models have none of them.
    const bool liger = recipe.tiling.loss.kind != Tiling::Kind::off;
    Traits traits;
    traits.eager_activation = implementation != Implementation::lean;
    switch (implementation) {
        case Implementation::untied_ulysses:
        case Implementation::torchtitan:
            traits.eager_rotary = true;
            traits.keeps_sent = true;
            traits.exchange_copies = true;
            traits.fp32_output = true;
            traits.fp32_gradients = true;
            traits.eager_merge = true;
            traits.tile_concatenation = true;
            traits.head_permutation = true;
            traits.adds_input_gradients = true;
            traits.full_rotary_table = true;
            traits.copies_alone = true;
            traits.repeats_kv_heads = implementation == Implementation::untied_ulysses;
            traits.offloads_rotary = true;
            traits.first_block_stays = implementation == Implementation::untied_ulysses;
            break;
        case Implementation::alst:
            traits.exchange_copies = true;
            traits.tile_concatenation = true;
            traits.keeps_sent = true;  // the locals of Hugging Face's attention
            traits.contiguous_again = true;
            traits.liger_mlp = liger;
            traits.eager_norms = !liger;
            traits.reentrant_checkpoints = true;  // what its offload patches, and the default of transformers 4
            break;
        case Implementation::megatron_deepspeed:
            traits.exchange_copies = true;
            traits.megatron = true;
            traits.reentrant_checkpoints = true;
            break;
        case Implementation::lean:
            break;
    }
    return traits;
}

}  // namespace headroom
