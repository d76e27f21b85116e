// SPDX-License-Identifier: Apache-2.0
// Nemotron-NAS (DeciLM): blocks found by a search, each with its own MLP width, some without attention.
#include <fmt/format.h>

#include <cmath>
#include <set>

#include "configs/hf_count.hpp"
#include "models/units.hpp"

namespace headroom {
namespace {

bool is_set(const Value& map, std::string_view name) {
    const Value* value = find(map, name);
    return value && !value->is_null() && boolean(*value);
}

const Value& part(const Value& block, std::string_view name) {
    const Value* value = find(block, name);
    if (!value || !value->is_map()) throw Error(fmt::format("{} has no {}", block.key, name), block.where());
    return *value;
}

std::int64_t positive_integer(const Value& map, std::string_view name) {
    const Value* value = find(map, name);
    if (!value) throw Error(fmt::format("{} has no {}", map.key, name), map.where());
    const std::int64_t result = integer(*value);
    if (result < 1) throw Error(fmt::format("{} cannot be {}", value->key, result), value->where());
    return result;
}

/// _ffn_mult_to_intermediate_size of the model code: two thirds of mult * hidden, up to a multiple of 256.
std::int64_t mlp_width(const Value& mlp, std::int64_t hidden) {
    const Value* multiple = find(mlp, "ffn_mult");
    if (!multiple) return positive_integer(mlp, "intermediate_size");
    const double width = 2 * number(*multiple) * static_cast<double>(hidden) / 3;
    if (!(width >= 1 && width < 1e9)) throw Error(fmt::format("{} cannot be that", multiple->key), multiple->where());
    return round_up(static_cast<std::int64_t>(width), 256);
}

}  // namespace

Counts count_blocks(HfFields& fields, std::string& summary) {
    const Value* blocks = fields.list("block_configs");
    const std::int64_t layers = fields.required_size({"num_hidden_layers"});
    const std::int64_t hidden = fields.required_size({"hidden_size"});
    const std::int64_t heads = fields.required_size({"num_attention_heads"});
    const std::int64_t vocabulary = fields.required_size({"vocab_size"});
    const bool tied = fields.flag("tie_word_embeddings").value_or(false);
    for (const std::string_view flag : {"attention_bias", "mlp_bias"}) {
        if (fields.flag(flag).value_or(false)) fields.problem(fmt::format("{} is not read beside block_configs", flag));
    }
    const auto entries = static_cast<std::int64_t>(blocks->items.size());
    if (entries != layers && layers > 0) {
        fields.problem(fmt::format("block_configs has {} entries for {} layers", entries, layers), blocks->where());
    }
    if (heads > 0 && hidden % heads != 0) {
        fields.problem(fmt::format("hidden_size {} is not divisible by num_attention_heads {}", hidden, heads));
    }
    fields.check();

    std::int64_t total = (tied ? 1 : 2) * vocabulary * hidden + hidden;
    std::int64_t without_attention = 0;
    std::set<std::int64_t> widths;
    for (const Value& block : blocks->items) {
        const Value& attention = part(block, "attention");
        if (is_set(attention, "replace_with_linear")) {
            total += hidden * hidden + hidden;
            ++without_attention;
        } else if (is_set(attention, "no_op")) {
            ++without_attention;  // and no norm
        } else {
            const std::int64_t kv_width = hidden / positive_integer(attention, "n_heads_in_group");
            total += 2 * hidden * hidden + 2 * hidden * kv_width + hidden;
        }
        const Value& mlp = part(block, "ffn");
        if (is_set(mlp, "replace_with_linear")) {
            total += hidden * hidden + hidden;
        } else if (!is_set(mlp, "no_op")) {
            const std::int64_t width = mlp_width(mlp, hidden);
            widths.insert(width);
            total += 3 * hidden * width + hidden;
        }
    }
    summary = fmt::format("per-block architecture (block_configs): {} of {} blocks without attention, {} MLP widths",
                          without_attention, layers, widths.size());
    return {total, total};
}

}  // namespace headroom
