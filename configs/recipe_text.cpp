// SPDX-License-Identifier: Apache-2.0
#include "configs/recipe_text.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <limits>

#include "configs/load.hpp"

namespace headroom {
namespace {

template <class Enum, std::size_t count>
void read(std::optional<Enum>& setting, const Value& value, const std::array<std::string_view, count>& names) {
    setting = static_cast<Enum>(choice(value, names));
}

std::int64_t positive(const Value& value, std::int64_t largest) {
    const std::int64_t number = integer(value);
    if (number >= 1 && number <= largest) return number;
    throw Error(fmt::format("{} must be between 1 and {}, not {}", value.key, largest, number), value.where());
}

void read(std::optional<std::int64_t>& setting, const Value& value) {
    setting = positive(value, std::numeric_limits<std::int32_t>::max());
}
void read(std::optional<int>& setting, const Value& value) {
    setting = static_cast<int>(positive(value, std::numeric_limits<int>::max()));
}
void read(std::optional<bool>& setting, const Value& value) { setting = boolean(value); }
void read(std::optional<Tokens>& setting, const Value& value) {
    setting = parse_tokens(scalar(value, "a number of tokens"), value.where());
}
void read(std::optional<Tiling>& setting, const Value& value) {
    const std::string& word = scalar(value, "off, auto or tokens per tile");
    if (word == "off") {
        setting = Tiling{Tiling::Kind::off, 0};
    } else if (word == "auto") {
        setting = Tiling{Tiling::Kind::automatic, 0};
    } else if (word.empty() || word.find_first_of("0123456789") != 0) {
        throw Error(fmt::format("{} must be off, auto or tokens per tile, not {}", value.key, shown(value)),
                    value.where());
    } else {
        setting = Tiling{Tiling::Kind::tokens, parse_tokens(word, value.where()).value};
    }
}

std::string write(std::int64_t number) { return fmt::format("{}", number); }
std::string write(bool flag) { return flag ? "true" : "false"; }
std::string write(std::string_view word) { return std::string(word); }
std::string write(const Tiling& tiling) {
    switch (tiling.kind) {
        case Tiling::Kind::off:
            return "off";
        case Tiling::Kind::automatic:
            return "auto";
        case Tiling::Kind::tokens:
            break;
    }
    return write(tiling.tokens);
}

struct Key {
    std::string_view name;
    void (*read)(Settings&, const Value&);
    std::string (*write)(const Recipe&);  ///< empty when the key says nothing for this recipe
};

using S = Settings;
using R = Recipe;
using V = Value;

constexpr Key keys[]{
    {"method", [](S& s, const V& v) { read(s.method, v, method_names); },
     [](const R& r) { return write(to_string(r.method)); }},
    {"context", [](S& s, const V& v) { read(s.context, v); }, [](const R& r) { return write(r.context.value); }},
    {"batch", [](S& s, const V& v) { read(s.batch, v); }, [](const R& r) { return write(r.batch); }},
    {"ulysses", [](S& s, const V& v) { read(s.ulysses, v); },
     [](const R& r) { return write(std::int64_t{r.ulysses}); }},
    {"ring", [](S& s, const V& v) { read(s.ring, v); }, [](const R& r) { return write(std::int64_t{r.ring}); }},
    {"heads_per_stage", [](S& s, const V& v) { read(s.heads_per_stage, v); },
     [](const R& r) { return r.heads_per_stage == 0 ? "" : write(std::int64_t{r.heads_per_stage}); }},
    {"chunk_tokens", [](S& s, const V& v) { read(s.chunk_tokens, v); },
     [](const R& r) { return r.chunk_tokens.value == 0 ? "" : write(r.chunk_tokens.value); }},
    {"implementation", [](S& s, const V& v) { read(s.implementation, v, implementation_names); },
     [](const R& r) { return write(to_string(r.implementation)); }},
    {"attention_kernel", [](S& s, const V& v) { read(s.attention_kernel, v, attention_kernel_names); },
     [](const R& r) { return write(to_string(r.attention_kernel)); }},
    {"rotation", [](S& s, const V& v) { read(s.rotation, v, rotation_names); },
     [](const R& r) { return r.method == Method::native ? write(to_string(r.rotation)) : ""; }},
    {"checkpointing", [](S& s, const V& v) { read(s.checkpointing, v, checkpointing_names); },
     [](const R& r) { return write(to_string(r.checkpointing)); }},
    {"offload.block_inputs", [](S& s, const V& v) { read(s.offload_block_inputs, v, host_place_names); },
     [](const R& r) { return write(to_string(r.offload.block_inputs)); }},
    {"offload.optimizer", [](S& s, const V& v) { read(s.offload_optimizer, v); },
     [](const R& r) { return write(r.offload.optimizer); }},
    {"offload.parameters", [](S& s, const V& v) { read(s.offload_parameters, v); },
     [](const R& r) { return write(r.offload.parameters); }},
    {"offload.chunks", [](S& s, const V& v) { read(s.offload_chunks, v); },
     [](const R& r) { return write(r.offload.chunks); }},
    {"tiling.norm", [](S& s, const V& v) { read(s.tiling_norm, v); }, [](const R& r) { return write(r.tiling.norm); }},
    {"tiling.mlp", [](S& s, const V& v) { read(s.tiling_mlp, v); }, [](const R& r) { return write(r.tiling.mlp); }},
    {"tiling.loss", [](S& s, const V& v) { read(s.tiling_loss, v); }, [](const R& r) { return write(r.tiling.loss); }},
    {"sharding.strategy", [](S& s, const V& v) { read(s.sharding_strategy, v, sharding_names); },
     [](const R& r) { return write(to_string(r.sharding.strategy)); }},
    {"sharding.degree", [](S& s, const V& v) { read(s.sharding_degree, v); },
     [](const R& r) { return write(std::int64_t{r.sharding.degree}); }},
    {"precision.compute", [](S& s, const V& v) { read(s.precision_compute, v, number_format_names); },
     [](const R& r) { return write(to_string(r.precision.compute)); }},
    {"precision.parameters", [](S& s, const V& v) { read(s.precision_parameters, v, number_format_names); },
     [](const R& r) { return write(to_string(r.precision.parameters)); }},
    {"precision.reduction", [](S& s, const V& v) { read(s.precision_reduction, v, number_format_names); },
     [](const R& r) { return write(to_string(r.precision.reduction)); }},
    {"precision.optimizer", [](S& s, const V& v) { read(s.precision_optimizer, v, number_format_names); },
     [](const R& r) { return write(to_string(r.precision.optimizer)); }},
    {"allocator.expandable_segments", [](S& s, const V& v) { read(s.expandable_segments, v); },
     [](const R& r) { return write(r.expandable_segments); }},
};

}  // namespace

std::vector<RecipeLine> describe(const Recipe& recipe) {
    std::vector<RecipeLine> lines;
    for (const Key& key : keys) {
        std::string value = key.write(recipe);
        if (!value.empty()) lines.push_back({std::string(key.name), std::move(value)});
    }
    return lines;
}

std::vector<std::string> recipe_keys() {
    std::vector<std::string> names;
    for (const Key& key : keys) names.emplace_back(key.name);
    return names;
}

void set_recipe_key(Settings& settings, const std::string& key, const Value& value) {
    for (const Key& known : keys) {
        if (known.name == key) return known.read(settings, value);
    }
    const std::vector<std::string> names = recipe_keys();
    const std::string near = did_you_mean(key, names);
    throw Error(
        fmt::format("unknown recipe key '{}'", key), value.where(),
        near.empty() ? fmt::format("the keys are {}", fmt::join(names, ", ")) : fmt::format("did you mean {}?", near));
}

}  // namespace headroom
