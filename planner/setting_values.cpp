// SPDX-License-Identifier: Apache-2.0
#include "planner/setting_values.hpp"

namespace headroom {

namespace {

SettingValue plain(bool value) { return value; }
SettingValue plain(int value) { return std::int64_t{value}; }
SettingValue plain(std::int64_t value) { return value; }
SettingValue plain(Tokens value) { return value.value; }
SettingValue plain(const Tiling& value) {
    if (value.kind == Tiling::Kind::tokens) return value.tokens;
    return std::string(value.kind == Tiling::Kind::off ? "off" : "auto");
}
template <class Enumeration>
requires std::is_enum_v<Enumeration> SettingValue plain(Enumeration value) { return std::string(to_string(value)); }

template <class T>
SettingValue value_of(const std::optional<T>& field) {
    return field ? plain(*field) : SettingValue{};
}

Settings as_settings(const Recipe& recipe) {
    Settings settings;
    settings.method = recipe.method;
    settings.context = recipe.context;
    settings.batch = recipe.batch;
    settings.ulysses = recipe.ulysses;
    settings.ring = recipe.ring;
    if (recipe.method == Method::upipe) settings.heads_per_stage = recipe.heads_per_stage;
    if (recipe.method == Method::fpdt) settings.chunk_tokens = recipe.chunk_tokens;
    settings.implementation = recipe.implementation;
    settings.attention_kernel = recipe.attention_kernel;
    if (recipe.method == Method::native) settings.rotation = recipe.rotation;
    settings.checkpointing = recipe.checkpointing;
    settings.offload_block_inputs = recipe.offload.block_inputs;
    settings.offload_optimizer = recipe.offload.optimizer;
    settings.offload_parameters = recipe.offload.parameters;
    settings.offload_chunks = recipe.offload.chunks;
    settings.tiling_norm = recipe.tiling.norm;
    settings.tiling_mlp = recipe.tiling.mlp;
    settings.tiling_loss = recipe.tiling.loss;
    settings.sharding_strategy = recipe.sharding.strategy;
    settings.sharding_degree = recipe.sharding.degree;
    settings.precision_compute = recipe.precision.compute;
    settings.precision_parameters = recipe.precision.parameters;
    settings.precision_reduction = recipe.precision.reduction;
    settings.precision_optimizer = recipe.precision.optimizer;
    settings.expandable_segments = recipe.expandable_segments;
    return settings;
}

}  // namespace

std::vector<NamedSetting> setting_values(const Settings& settings) {
    return {
        {"method", value_of(settings.method)},
        {"context", value_of(settings.context)},
        {"batch", value_of(settings.batch)},
        {"ulysses", value_of(settings.ulysses)},
        {"ring", value_of(settings.ring)},
        {"heads_per_stage", value_of(settings.heads_per_stage)},
        {"chunk_tokens", value_of(settings.chunk_tokens)},
        {"implementation", value_of(settings.implementation)},
        {"attention_kernel", value_of(settings.attention_kernel)},
        {"rotation", value_of(settings.rotation)},
        {"checkpointing", value_of(settings.checkpointing)},
        {"offload.block_inputs", value_of(settings.offload_block_inputs)},
        {"offload.optimizer", value_of(settings.offload_optimizer)},
        {"offload.parameters", value_of(settings.offload_parameters)},
        {"offload.chunks", value_of(settings.offload_chunks)},
        {"tiling.norm", value_of(settings.tiling_norm)},
        {"tiling.mlp", value_of(settings.tiling_mlp)},
        {"tiling.loss", value_of(settings.tiling_loss)},
        {"sharding.strategy", value_of(settings.sharding_strategy)},
        {"sharding.degree", value_of(settings.sharding_degree)},
        {"precision.compute", value_of(settings.precision_compute)},
        {"precision.parameters", value_of(settings.precision_parameters)},
        {"precision.reduction", value_of(settings.precision_reduction)},
        {"precision.optimizer", value_of(settings.precision_optimizer)},
        {"allocator.expandable_segments", value_of(settings.expandable_segments)},
    };
}

std::vector<NamedSetting> setting_values(const Recipe& recipe) { return setting_values(as_settings(recipe)); }

std::string to_string(const SettingValue& value) {
    if (const auto* flag = std::get_if<bool>(&value)) return *flag ? "true" : "false";
    if (const auto* number = std::get_if<std::int64_t>(&value)) return std::to_string(*number);
    if (const auto* text = std::get_if<std::string>(&value)) return *text;
    return {};
}

}  // namespace headroom
