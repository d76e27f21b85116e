// SPDX-License-Identifier: Apache-2.0
// The attention part of one block alone, forward and backward, described so that it can be run and its results
// compared.
#pragma once

#include <string>

#include "models/schedule.hpp"
#include "models/workload.hpp"

namespace headroom {

/// Tensors that the surroundings give (filled after the segment "setup") and take (read after "backward"). In the
/// compute format, [rows][D] and weights [out][in]; K and V weights lie behind each other in one gradient. The rotary
/// table is fp32 [rows][d/2][2], cosine and sine.
struct AttentionStep {
    TensorId input, query_weight, key_weight, value_weight, output_weight, result_gradient, rotary_table;
    TensorId result, input_gradient, query_weight_gradient, key_value_weight_gradient, output_weight_gradient;
    // With QK norm; the gradients of both weights lie behind each other.
    TensorId query_norm = ~TensorId{0}, key_norm = ~TensorId{0}, qk_norm_gradient = ~TensorId{0};
};

/// Segments: setup, forward (as a checkpointed block runs it first, when the recipe has checkpoints), recompute,
/// backward, teardown. Lean implementations, one sequence; throws Error for what no description exists of. Not
/// `described`, it is written as a training step has it, for comparison.
AttentionStep build_attention_step(const Workload& work, Schedule& schedule, bool described = true);

/// Why attention of `work` has no description; empty when it has one.
std::string attention_not_described(const Workload& work);

/// Which query head of the model stands at each place of Wq's rows and Wo's columns: UPipe's stages take one head from
/// each KV group in turn, and the lean form has the weights lie in that order.
std::int64_t model_head(const Workload& work, std::int64_t place);

/// Position in the sequence of a rank's row: rank `ulysses_rank` of its Ulysses group, `ring_rank` of its ring.
std::int64_t position_of(const Workload& work, int ulysses_rank, int ring_rank, std::int64_t row);

}  // namespace headroom
