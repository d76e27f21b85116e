// SPDX-License-Identifier: Apache-2.0
#include "configs/inline.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "configs/hf_config.hpp"
#include "configs/load.hpp"

namespace headroom {
namespace {

void strip(Value& value, std::size_t prefix) {
    value.key = value.key.size() > prefix ? value.key.substr(prefix) : "";
    for (Value& item : value.items) strip(item, prefix);
}

struct Size {
    std::string_view name;
    std::int64_t Transformer::*member;
};
constexpr Size sizes[]{{"layers", &Transformer::layers},        {"hidden", &Transformer::hidden},
                       {"heads", &Transformer::heads},          {"kv_heads", &Transformer::kv_heads},
                       {"head_dim", &Transformer::head_dim},    {"ffn", &Transformer::ffn},
                       {"vocabulary", &Transformer::vocabulary}};

}  // namespace

Value rooted(const Value& map) {
    Value root = map;
    for (Value& item : root.items) strip(item, map.key.empty() ? 0 : map.key.size() + 1);
    root.key.clear();
    root.name.clear();
    return root;
}

Transformer read_model(const Value& map, const std::string& name) {
    if (!map.is_map()) throw Error(fmt::format("a model must be a name or a map, not {}", shown(map)), map.where());
    const Value* base = find(map, "base");
    if (!base) {
        const ModelFile model = import_hf_config(map, name, map.place);
        if (model.refusals.empty()) return model.transformer;
        throw Error(fmt::format("{} cannot be planned: {}", name, fmt::join(model.refusals, "; ")), map.place);
    }
    std::vector<std::string> known{"base"};
    for (const Size& size : sizes) known.emplace_back(size.name);
    reject_unknown_keys(map, known);
    Transformer model = load_model(text(*base));
    std::string changes;
    for (const Size& size : sizes) {
        const Value* value = find(map, size.name);
        if (!value) continue;
        model.*size.member = integer(*value);
        if (model.*size.member < 1) throw Error(fmt::format("{} must be 1 or more", value->key), value->where());
        changes += fmt::format(" {}={}", size.name, model.*size.member);
    }
    if (model.heads % model.kv_heads != 0) {
        throw Error(fmt::format("{} query heads are not a multiple of {} KV heads", model.heads, model.kv_heads),
                    map.place);
    }
    model.name += changes;
    return model;
}

}  // namespace headroom
