// SPDX-License-Identifier: Apache-2.0
#include "configs/hf_layers.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>

namespace headroom {
namespace {

std::string of_layers(std::int64_t count, std::int64_t layers) { return fmt::format("{} of {} layers", count, layers); }

std::string window_sentence(std::int64_t count, std::int64_t layers, std::optional<std::int64_t> window) {
    const std::string size = window ? fmt::format("{}-token ", *window) : "";
    return fmt::format("{} use a {}sliding window", of_layers(count, layers), size);
}

std::string chunk_sentence(std::int64_t count, std::int64_t layers, std::optional<std::int64_t> chunk) {
    const std::string size = chunk ? fmt::format("{}-token ", *chunk) : "";
    return fmt::format("{} use {}attention chunks", of_layers(count, layers), size);
}

std::string linear_sentence(std::int64_t count, std::int64_t layers) {
    return fmt::format("{} are linear attention", of_layers(count, layers));
}

/// layer_types names every layer. It may go on with the types of multi-token prediction layers.
void by_layer_types(HfFields& fields, std::int64_t layers, std::vector<std::string>& sentences) {
    const std::vector<std::string> types = fields.words("layer_types");
    if (static_cast<std::int64_t>(types.size()) < layers) {
        const Value* list = fields.list("layer_types");
        fields.problem(fmt::format("layer_types has {} entries for {} layers", types.size(), layers), list->where());
        return;
    }
    std::map<std::string, std::int64_t> counts;
    for (std::int64_t layer = 0; layer < layers; ++layer) ++counts[types[static_cast<std::size_t>(layer)]];
    for (const auto& [type, count] : counts) {
        if (type == "full_attention" || type == "attention") continue;
        if (type == "sliding_attention") {
            sentences.push_back(window_sentence(count, layers, fields.size({"sliding_window"})));
        } else if (type == "chunked_attention") {
            sentences.push_back(chunk_sentence(count, layers, fields.size({"attention_chunk_size"})));
        } else if (type == "linear_attention") {
            sentences.push_back(linear_sentence(count, layers));
        } else {
            sentences.push_back(fmt::format("{} have type '{}'", of_layers(count, layers), type));
        }
    }
}

/// Llama 4: a 1 in no_rope_layers is a layer with rotary embedding and chunks; every fourth has neither.
std::int64_t chunked_layers(HfFields& fields, std::int64_t layers) {
    const Value* rotary = fields.list("no_rope_layers");
    if (rotary && !rotary->items.empty()) {
        return std::count_if(rotary->items.begin(), rotary->items.end(),
                             [](const Value& item) { return item.text == "1"; });
    }
    const std::int64_t interval = fields.size({"no_rope_layer_interval"}).value_or(4);
    return layers - layers / interval;
}

void by_class(HfFields& fields, const HfFamily& family, std::int64_t layers, std::vector<std::string>& sentences) {
    if (family.window == WindowStyle::chunks) {
        const auto chunk = fields.size({"attention_chunk_size"});
        if (chunk) sentences.push_back(chunk_sentence(chunked_layers(fields, layers), layers, chunk));
        return;
    }
    const bool flagged_off = !fields.flag("use_sliding_window").value_or(family.window != WindowStyle::by_flag);
    auto window = fields.size({"sliding_window"});
    if (!window && family.default_window > 0 && !fields.has("sliding_window")) window = family.default_window;
    if (flagged_off || !window) return;

    std::int64_t count = layers;
    if (family.window == WindowStyle::by_flag) {
        count = layers - std::min(layers, fields.count({"max_window_layers"}).value_or(0));
    } else if (family.window == WindowStyle::every_other) {
        count = (layers + 1) / 2;
    } else if (family.window == WindowStyle::every_sixth_full) {
        count = layers - layers / fields.size({"sliding_window_pattern", "_sliding_window_pattern"}).value_or(6);
    } else if (family.window == WindowStyle::every_fourth_full) {
        count = layers - layers / 4;
    }
    if (count > 0) sentences.push_back(window_sentence(count, layers, window));
}

}  // namespace

std::int64_t cross_attention_layers(HfFields& fields) {
    const Value* list = fields.list("cross_attention_layers");
    return list ? static_cast<std::int64_t>(list->items.size()) : 0;
}

std::vector<std::string> unusual_layers(HfFields& fields, const HfFamily* family, std::int64_t layers) {
    std::vector<std::string> sentences;
    if (fields.list("layer_types")) {
        by_layer_types(fields, layers, sentences);
    } else if (family) {
        by_class(fields, *family, layers, sentences);
    } else if (const auto window = fields.size({"sliding_window"})) {
        sentences.push_back(fmt::format("a {}-token sliding window", *window));
    }
    if (const std::int64_t cross = cross_attention_layers(fields)) {
        sentences.push_back(fmt::format("{} are cross-attention to image tokens", of_layers(cross, layers)));
    }
    return sentences;
}

std::vector<std::string> foreign_structures(HfFields& fields) {
    std::vector<std::string> sentences;
    const std::int64_t layers = fields.count({"num_hidden_layers", "n_layer"}).value_or(0);
    if (fields.flag("is_encoder_decoder").value_or(false) || fields.field({"decoder_layers"})) {
        sentences.push_back("an encoder-decoder model");
    }
    if (fields.flag("add_cross_attention").value_or(false)) sentences.push_back("cross-attention in every layer");
    if (fields.list("compress_ratios") || fields.field({"index_topk"})) {
        sentences.push_back("compressed sparse attention (index_topk, compress_ratios)");
    }
    if (fields.field({"global_head_dim"})) {
        sentences.push_back("two head sizes (head_dim and global_head_dim)");
    }
    if (fields.flag("attention_k_eq_v").value_or(false)) sentences.push_back("keys and values shared in some layers");
    if (const auto interval = fields.size({"full_attention_interval"}); interval && !fields.list("layer_types")) {
        sentences.push_back(linear_sentence(layers - layers / *interval, layers));
    } else if (const std::string key = fields.key_containing("linear_num_"); !key.empty()) {
        if (!fields.list("layer_types")) sentences.push_back(fmt::format("linear attention ({})", key));
    }
    if (const Value* types = fields.list("attn_type_list")) {  // MiniMax-01: 0 is lightning attention
        const auto linear =
            std::count_if(types->items.begin(), types->items.end(), [](const Value& item) { return item.text == "0"; });
        sentences.push_back(linear_sentence(linear, static_cast<std::int64_t>(types->items.size())));
    }
    for (const std::string_view part : {"mamba", "ssm_", "state_size", "hybrid_override_pattern", "lru_width"}) {
        const std::string key = fields.key_containing(part);
        if (key.empty()) continue;
        sentences.push_back(fmt::format("state-space layers ({})", key));
        break;
    }
    return sentences;
}

}  // namespace headroom
