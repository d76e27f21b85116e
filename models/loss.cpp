// SPDX-License-Identifier: Apache-2.0
#include "models/loss.hpp"

#include <algorithm>

#include "models/linear.hpp"

namespace headroom {
namespace {

/// Rows of logits that exist at once. Liger: ceil(V/D) chunks, rounded up to a power of two of rows; Megatron's FPDT:
/// a thirty-second of the attention chunk (gpt_model.py:47).
std::int64_t chunk_rows(const Workload& work) {
    const Tiling& tiling = work.recipe.tiling.loss;
    if (tiling.kind == Tiling::Kind::off) return work.tokens;
    if (tiling.kind == Tiling::Kind::tokens) return std::min(tiling.tokens, work.tokens);
    if (work.recipe.implementation == Implementation::megatron_deepspeed) {
        return std::clamp<std::int64_t>(work.recipe.chunk_tokens.value / work.recipe.context_parallel() / 32, 1,
                                        work.tokens);
    }
    const std::int64_t chunks = divide_round_up(work.model.vocabulary, work.model.hidden);
    return std::min(work.tokens, next_power_of_two(divide_round_up(work.tokens, chunks)));
}

void head_gemms(Step& step, std::int64_t rows, std::int64_t chunks, bool forward, bool backward) {
    const TransformerShape& model = step.work.model;
    if (forward) step.to.gemm("head", rows, model.vocabulary, model.hidden, chunks);
    if (!backward) return;
    step.to.gemm("head, input gradient", rows, model.hidden, model.vocabulary, chunks);
    // Lean: the products add up in the gradient itself.
    const bool adds = step.work.recipe.implementation == Implementation::lean && chunks > 1;
    step.to.gemm("head, weight gradient", model.vocabulary, model.hidden, rows, chunks, adds);
}

struct FusedLoss {
    TensorId normed, input_gradient, weight_gradient, losses, logits;
};

/// Chunk after chunk, as it is run.
void describe_chunks(Step& step, const LossOperands& of, const FusedLoss& at, std::int64_t most_rows) {
    const Workload& work = step.work;
    const std::int64_t hidden = work.model.hidden, words = work.model.vocabulary;
    for (std::int64_t first = 0; first < work.tokens; first += most_rows) {
        const std::int64_t rows = std::min(most_rows, work.tokens - first);
        const View normed = View(at.normed) + work.element * first * hidden;
        const View input_gradient = View(at.input_gradient) + work.element * first * hidden;
        step.to.gemm("head", rows, words, hidden);
        step.to.computes(linear_forward(rows, words, hidden, normed, of.head, at.logits));
        step.eager("cross-entropy", {2 * work.element * rows * words});
        step.to.computes(
            CrossEntropy{at.logits, of.labels + 8 * first, View(at.losses) + 4 * first, rows, words, of.weight});
        step.to.gemm("head, input gradient", rows, hidden, words);
        step.to.computes(linear_input_gradient(rows, words, hidden, at.logits, of.head, input_gradient));
        step.to.gemm("head, weight gradient", words, hidden, rows, 1, work.tokens > most_rows);
        step.to.computes(linear_weight_gradient(rows, words, hidden, at.logits, normed, at.weight_gradient, first > 0));
    }
}

/// Chunks of logits whose gradient is taken at once, in place: nothing of vocabulary width survives.
LossKept fused_forward(Step& step, const LossOperands& of) {
    const Workload& work = step.work;
    const std::int64_t rows = chunk_rows(work);
    const std::int64_t chunks = divide_round_up(work.tokens, rows);
    const std::int64_t head = work.model.vocabulary * work.model.hidden;
    const bool liger = step.traits.tile_concatenation;  // the implementations that use Liger's kernel
    LossKept kept;
    kept.normed = norm_forward(step, "normed hidden state", {of.hidden, of.final_norm});
    kept.input_gradient = step.to.allocate("gradient of normed hidden state", Group::loss, work.hidden);
    kept.weight_gradient = step.to.allocate("gradient of head", Group::gradients, work.weights(head));
    const TensorId losses = step.to.allocate("loss of every token", Group::loss, {4 * work.tokens});
    const TensorId logits =
        step.to.allocate("logits of a chunk", Group::loss, {work.element * rows * work.model.vocabulary});
    const TensorId product =
        liger ? step.to.allocate("gradient of head from a chunk", Group::loss, work.weights(head)) : no_tensor;
    const TensorId wide =
        liger ? step.to.allocate("gradient of head from a chunk, fp32", Group::loss, {4 * head}) : no_tensor;
    if (step.to.describing()) {
        describe_chunks(step, of, {kept.normed, kept.input_gradient, kept.weight_gradient, losses, logits}, rows);
    } else {
        head_gemms(step, rows, chunks, true, true);
        step.eager("cross-entropy", {2 * work.element * work.tokens * work.model.vocabulary}, chunks);
    }
    if (liger) {
        step.eager("gradient of head to fp32", {6 * head * chunks}, chunks);
        step.to.memory_bound("add gradient of head", MemoryKernel::mixed_add, {6 * head * chunks}, {2 * head * chunks},
                             chunks);
    }
    step.release(wide, product, logits, losses, kept.normed);
    kept.normed = no_tensor;
    return kept;
}

/// All logits at once: kept in fp32 log-probabilities until backward.
LossKept plain_forward(Step& step) {
    const Workload& work = step.work;
    const std::int64_t elements = work.tokens * work.model.vocabulary;
    LossKept kept;
    kept.normed = norm_forward(step, "normed hidden state", {}, &kept.norm);
    const TensorId logits = step.to.allocate("logits", Group::loss, {work.element * elements});
    head_gemms(step, work.tokens, 1, true, false);
    const TensorId wide = step.to.allocate("logits, fp32", Group::loss, {4 * elements});
    step.eager("logits to fp32", {6 * elements});
    step.release(logits);
    kept.log_probabilities = step.to.allocate("log-probabilities, fp32", Group::loss, {4 * elements});
    step.eager("log-softmax", {8 * elements});
    step.release(wide);
    return kept;
}

/// Megatron-DeepSpeed's FPDT loss: hidden states go to pageable host memory, chunks of logits are recomputed in
/// backward.
LossKept megatron_forward(Step& step) {
    const Workload& work = step.work;
    const std::int64_t rows = chunk_rows(work);
    const std::int64_t elements = rows * work.model.vocabulary;
    const std::int64_t chunks = divide_round_up(work.tokens, rows);
    LossKept kept;
    kept.normed = norm_forward(step, "normed hidden state", {});
    const TensorId losses = step.to.allocate("loss of every token", Group::loss, {4 * work.tokens});
    const TensorId logits = step.to.allocate("logits of a chunk, fp32 and 16 bit", Group::loss, {6 * elements});
    head_gemms(step, rows, chunks, true, false);
    step.eager("cross-entropy", {22 * work.tokens * work.model.vocabulary}, 6 * chunks);
    step.release(logits, losses);
    step.to.copy("offload hidden state", Stream::compute,
                 {.to_host = true, .pinned = false, .fresh = true, .bytes = work.hidden.value});
    step.to.host_wait("offload hidden state", Stream::compute);
    return kept;
}

}  // namespace

LossKept loss_forward(Step& step, const LossOperands& of) {
    if (step.work.recipe.tiling.loss.kind == Tiling::Kind::off) return plain_forward(step);
    return step.traits.megatron ? megatron_forward(step) : fused_forward(step, of);
}

void loss_backward(Step& step, LossKept& kept, TensorId hidden, TensorId gradient, const LossOperands& of) {
    const Workload& work = step.work;
    const std::int64_t head = work.model.vocabulary * work.model.hidden;
    if (work.recipe.tiling.loss.kind == Tiling::Kind::off) {
        const std::int64_t elements = work.tokens * work.model.vocabulary;
        const TensorId from_loss = step.to.allocate("gradient of log-probabilities, fp32", Group::loss, {4 * elements});
        const TensorId wide = step.to.allocate("gradient of logits, fp32", Group::loss, {4 * elements});
        step.eager("log-softmax backward", {16 * elements}, 2);
        step.release(from_loss, kept.log_probabilities);
        const TensorId narrow = step.to.allocate("gradient of logits", Group::loss, {work.element * elements});
        step.eager("gradient of logits from fp32", {6 * elements});
        step.release(wide);
        kept.input_gradient = step.to.allocate("gradient of normed hidden state", Group::loss, work.hidden);
        kept.weight_gradient = step.to.allocate("gradient of head", Group::gradients, work.weights(head));
        head_gemms(step, work.tokens, 1, false, true);
        step.release(narrow, kept.normed);
    } else if (step.traits.megatron) {
        const std::int64_t rows = chunk_rows(work);
        const std::int64_t elements = rows * work.model.vocabulary;
        const std::int64_t chunks = divide_round_up(work.tokens, rows);
        step.to.copy("fetch hidden state", Stream::compute,
                     {.to_host = false, .pinned = false, .fresh = false, .bytes = work.hidden.value});
        kept.input_gradient = step.to.allocate("gradient of normed hidden state", Group::loss, work.hidden);
        const TensorId sum = step.to.allocate("gradient of head, fp32", Group::loss, {4 * head});
        kept.weight_gradient = step.to.allocate("gradient of head", Group::gradients, work.weights(head));
        const TensorId chunk = step.to.allocate("logits of a chunk and their gradients", Group::loss, {9 * elements});
        head_gemms(step, rows, chunks, true, true);
        step.eager("cross-entropy backward", {28 * work.tokens * work.model.vocabulary + 10 * head * chunks},
                   8 * chunks);
        step.release(chunk, sum, kept.normed);
    }
    // What the norm gives is the gradient of the last block's output: only its name changes.
    const bool described = step.to.describing();
    const TensorId through_norm = norm_backward(step, "gradient of hidden state", {of.hidden, of.final_norm},
                                                kept.input_gradient, kept.norm, described ? gradient : no_tensor);
    step.release(kept.input_gradient);
    if (hidden != no_tensor) step.release(hidden);
    if (described) return;
    step.release(through_norm);
    step.to.allocate_again(gradient, "gradient of block output", Group::residual, work.hidden);
}

}  // namespace headroom
