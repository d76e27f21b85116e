// SPDX-License-Identifier: Apache-2.0
// The only file that includes toml++: TOML as the values of the strict reader.
#include <fmt/format.h>

#include "configs/foreign.hpp"

#ifdef HEADROOM_TOML
#define TOML_EXCEPTIONS 1
#include <toml++/toml.h>
#endif

namespace headroom {

#ifdef HEADROOM_TOML

namespace {

std::string place_of(const std::string& file, const toml::source_region& source) {
    return fmt::format("{}:{}:{}", file, source.begin.line, source.begin.column);
}

Value value_of(const toml::node& node, const std::string& file, const std::string& key, const std::string& name) {
    Value value;
    value.key = key;
    value.name = name;
    value.place = place_of(file, node.source());
    if (const auto* table = node.as_table()) {
        value.kind = Value::Kind::map;
        for (const auto& [child, inner] : *table) {
            const std::string child_name(child.str());
            std::string path = key;
            if (!path.empty()) path += '.';
            path += child_name;
            value.items.push_back(value_of(inner, file, path, child_name));
        }
        return value;
    }
    if (const auto* list = node.as_array()) {
        value.kind = Value::Kind::list;
        for (std::size_t i = 0; i < list->size(); ++i) {
            const std::string index = fmt::format("[{}]", i);
            value.items.push_back(value_of(*list->get(i), file, key + index, index));
        }
        return value;
    }
    value.kind = Value::Kind::scalar;
    if (const auto* text = node.as_string()) {
        value.text = text->get();
        value.quoted = true;
    } else if (const auto* integer = node.as_integer()) {
        value.text = fmt::format("{}", integer->get());
    } else if (const auto* number = node.as_floating_point()) {
        value.text = fmt::format("{}", number->get());
    } else if (const auto* flag = node.as_boolean()) {
        value.text = flag->get() ? "true" : "false";
    } else {
        value.text = "a date or time";
        value.quoted = true;
    }
    return value;
}

}  // namespace

Value parse_toml(const std::string& text, const std::string& file) {
    try {
        return value_of(toml::parse(text, file), file, "", "");
    } catch (const toml::parse_error& error) {
        throw Error(std::string(error.description()), place_of(file, error.source()), "correct the TOML");
    }
}

#else

Value parse_toml(const std::string&, const std::string& file) {
    throw Error("this build reads no TOML", file, "install libtomlplusplus-dev and build again");
}

#endif

}  // namespace headroom
