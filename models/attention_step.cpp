// SPDX-License-Identifier: Apache-2.0
#include "models/attention_step.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "models/error.hpp"
#include "models/methods/method.hpp"

namespace headroom {
std::string attention_not_described(const Workload& work) {
    const Recipe& recipe = work.recipe;
    const TransformerShape& model = work.model;
    if (recipe.implementation != Implementation::lean) {
        return fmt::format("the {} implementation", to_string(recipe.implementation));
    }
    if (recipe.method == Method::native) return "native context parallel";
    if (recipe.method == Method::upipe && recipe.ring > 1) return "upipe over a ring";
    if (recipe.batch > 1) return "more than one sequence";
    if (model.qk_norm == QkNorm::full_width) return "a model with QK norm over all heads at once";
    if (model.qkv_bias || model.output_bias) return "a model with biases in attention";
    if (model.rotary_fraction != 1.0 || model.learned_positions > 0) {
        return "a model without rotary embedding of whole heads";
    }
    if (work.kv_heads != model.kv_heads) return "a Ulysses degree above the KV heads";
    return "";
}

AttentionStep build_attention_step(const Workload& work, Schedule& schedule, bool described) {
    if (const std::string reason = attention_not_described(work); !reason.empty()) {
        throw Error(reason + " cannot be run", "a schedule to run",
                    "use the lean form of ring, ulysses, usp, fpdt, upipe");
    }
    Builder to(schedule);
    if (described) to.describe();
    const Traits traits = traits_of(work.recipe);
    std::vector<TensorId> gradients;
    Step step{to, work, traits, gradients};

    AttentionStep outside{};
    to.segment("setup", Phase::setup);
    const auto given = [&](const char* name, Bytes bytes) { return to.allocate(name, Group::residual, bytes); };
    outside.input = given("normed input", work.hidden);
    outside.query_weight = given("wq", work.weights(work.parameters.query));
    outside.key_weight = given("wk", work.weights(work.parameters.key_value / 2));
    outside.value_weight = given("wv", work.weights(work.parameters.key_value / 2));
    outside.output_weight = given("wo", work.weights(work.parameters.output));
    outside.result_gradient = given("gradient of attention result", work.hidden);
    if (work.model.qk_norm != QkNorm::none) {
        outside.query_norm = given("norm of query", work.weights(work.model.head_dim));
        outside.key_norm = given("norm of key", work.weights(work.model.head_dim));
    }
    outside.rotary_table = given("rotary table", {4 * work.tokens * work.model.head_dim});
    Operands& operands = step.operands;
    operands.input = outside.input;
    operands.query_weight = outside.query_weight;
    operands.key_weight = outside.key_weight;
    operands.value_weight = outside.value_weight;
    operands.output_weight = outside.output_weight;
    operands.result_gradient = outside.result_gradient;
    operands.query_norm = outside.query_norm;
    operands.key_norm = outside.key_norm;
    operands.rotary_table = outside.rotary_table;
    if (work.recipe.checkpointing == Checkpointing::full) {
        to.segment("forward", Phase::forward);
        to.release(attention_forward(step, false).result);
    }
    to.segment("recompute", Phase::recompute);
    Kept kept = attention_forward(step, true);
    outside.result = kept.result;
    to.segment("backward", Phase::backward);
    outside.input_gradient = attention_backward(step, kept);
    auto made = gradients.begin();
    outside.output_weight_gradient = *made++;
    if (work.model.qk_norm != QkNorm::none) outside.qk_norm_gradient = *made++;
    outside.query_weight_gradient = *made++;
    outside.key_value_weight_gradient = *made++;
    to.segment("teardown", Phase::optimizer);
    to.release(outside.input, outside.query_weight, outside.key_weight, outside.value_weight, outside.output_weight,
               outside.result_gradient, outside.rotary_table, outside.result, outside.input_gradient);
    step.release(outside.query_norm, outside.key_norm);
    for (const TensorId tensor : gradients) to.release(tensor);
    to.finish();
    return outside;
}

std::int64_t model_head(const Workload& work, std::int64_t place) {
    const Recipe& recipe = work.recipe;
    if (recipe.method != Method::upipe || recipe.heads_per_stage == work.model.heads) return place;
    const std::int64_t stage_heads = recipe.heads_per_stage;
    const std::int64_t chunk_kv_heads = std::min(stage_heads, work.kv_heads);
    const std::int64_t group = stage_heads / chunk_kv_heads;  // query heads of a KV head in one stage
    const std::int64_t reuse = work.model.heads / stage_heads / (work.kv_heads / chunk_kv_heads);
    const std::int64_t stage = place / stage_heads;
    const std::int64_t within = place % stage_heads;
    const std::int64_t kv_head = stage / reuse * chunk_kv_heads + within / group;
    return kv_head * work.model.group() + stage % reuse * group + within % group;
}

std::int64_t position_of(const Workload& work, int ulysses_rank, int ring_rank, std::int64_t row) {
    const std::int64_t ulysses = work.recipe.ulysses;
    if (work.recipe.method == Method::fpdt && work.recipe.chunk_tokens != work.recipe.context) {
        const std::int64_t rows = work.recipe.chunk_tokens.value / ulysses;  // of a chunk on a rank
        return (row / rows * ulysses + ulysses_rank) * rows + row % rows;
    }
    const std::int64_t in_shard = ulysses_rank * work.tokens + row;
    if (work.recipe.ring == 1) return in_shard;
    // Zig-zag: rank r of R holds pieces r and 2R - 1 - r of 2R.
    const std::int64_t piece = work.ring_tokens() / 2;
    const std::int64_t which = in_shard < piece ? ring_rank : 2 * work.recipe.ring - 1 - ring_rank;
    return which * piece + in_shard % piece;
}

}  // namespace headroom
