// SPDX-License-Identifier: Apache-2.0
// Recipe files, the recipes as published, and `key=value` from --set.
#include <fmt/format.h>

#include <array>
#include <map>
#include <mutex>

#include "configs/builtin_data.hpp"
#include "configs/foreign.hpp"
#include "configs/inline.hpp"
#include "configs/load.hpp"
#include "configs/reader.hpp"
#include "configs/recipe_text.hpp"

namespace headroom {
namespace {

bool is_group(const std::string& key) {
    for (const std::string& known : recipe_keys()) {
        if (known.starts_with(key + ".")) return true;
    }
    return false;
}

/// `offload: {chunks: true}` and `offload.chunks: true` are the same key, and may stand once between them.
void apply(Settings& settings, const Value& map, std::map<std::string, std::string>& places) {
    for (const Value& item : map.items) {
        if (item.is_map() && is_group(item.key)) {
            apply(settings, item, places);
            continue;
        }
        const auto [seen, is_new] = places.try_emplace(item.key, item.place);
        if (!is_new) {
            throw Error(fmt::format("{} stands twice", item.key), item.where(),
                        fmt::format("the first is at {}; keep one of them", seen->second));
        }
        if (is_group(item.key)) {
            throw Error(fmt::format("{} must be a map of its settings, not {}", item.key, shown(item)), item.where());
        }
        set_recipe_key(settings, item.key, item);
    }
}

}  // namespace

Settings read_recipe(const Value& root) {
    if (!root.is_map()) {
        throw Error(fmt::format("a recipe must be a map of keys, not {}", shown(root)), root.where(),
                    "begin with for example 'method: upipe'");
    }
    // What `headroom plan --format json` prints holds its recipe.
    const Value* inner = find(root, "schema_version") == nullptr ? nullptr : find(root, "recipe");
    Settings settings;
    std::map<std::string, std::string> places;
    apply(settings, inner != nullptr && inner->is_map() ? rooted(*inner) : root, places);
    return settings;
}

Settings published_recipe(Method method) {
    // Sweeps ask for the same six again and again.
    static std::array<std::once_flag, method_names.size()> parsed;
    static std::array<Settings, method_names.size()> recipes;
    const auto index = static_cast<std::size_t>(method);
    std::call_once(parsed[index], [&] {
        const std::string name(to_string(method));
        const std::string text(builtin_text("recipes", name).value());
        recipes[index] = read_recipe(parse_yaml(text, "recipes/" + name + ".yaml"));
    });
    return recipes[index];
}

Settings load_recipe(const std::string& path) {
    const RecipeFile file = load_recipe_file(path);
    return layer(file.settings, file.guess);
}

void set(Settings& settings, const std::string& assignment) {
    const std::size_t equals = assignment.find('=');
    if (equals == std::string::npos || equals == 0) {
        throw Error(fmt::format("'{}' is not key=value", assignment), "--set", "write for example --set ring=2");
    }
    Value value;
    value.kind = Value::Kind::scalar;
    value.key = assignment.substr(0, equals);
    value.name = value.key;
    value.place = "--set";
    value.text = assignment.substr(equals + 1);
    set_recipe_key(settings, value.key, value);
}

}  // namespace headroom
