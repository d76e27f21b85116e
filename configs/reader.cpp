// SPDX-License-Identifier: Apache-2.0
#include "configs/reader.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "configs/load.hpp"
#include "configs/sizes.hpp"

namespace headroom {
namespace {

Error mistyped(const Value& value, const std::string& expected, const std::string& hint = {}) {
    return Error(fmt::format("{} must be {}, not {}", value.key, expected, shown(value)), value.where(), hint);
}

void require_plain(const Value& value, const std::string& expected) {
    if (value.kind != Value::Kind::scalar) throw mistyped(value, expected);
    if (value.quoted) throw mistyped(value, expected, "remove the quotes");
}

}  // namespace

std::string Value::where() const { return key.empty() ? place : fmt::format("{}: {}", place, key); }

std::string shown(const Value& value) {
    switch (value.kind) {
        case Value::Kind::null:
            return "null";
        case Value::Kind::list:
            return "a list";
        case Value::Kind::map:
            return "a map";
        case Value::Kind::scalar:
            break;
    }
    std::string words = value.text.substr(0, 40);
    if (words.size() < value.text.size()) words += "...";
    return value.quoted ? fmt::format("the text \"{}\"", words) : fmt::format("'{}'", words);
}

const Value* find(const Value& map, std::string_view name) {
    const Value* found = nullptr;
    for (const Value& item : map.items) {
        if (item.name != name) continue;
        if (found) {
            throw Error(fmt::format("{} stands twice", item.key), item.where(),
                        fmt::format("the first is at {}; keep one of them", found->place));
        }
        found = &item;
    }
    return found;
}

void reject_unknown_keys(const Value& map, std::span<const std::string> known) {
    for (const Value& item : map.items) {
        find(map, item.name);
        if (std::find(known.begin(), known.end(), item.name) != known.end()) continue;
        const std::string near = did_you_mean(item.name, {known.begin(), known.end()});
        throw Error(fmt::format("unknown key {}", item.key), item.where(),
                    near.empty() ? fmt::format("known keys are {}", fmt::join(known, ", "))
                                 : fmt::format("did you mean {}?", near));
    }
}

std::int64_t integer(const Value& value) {
    require_plain(value, "a whole number");
    return parse_integer(value.text, value.key, value.where());
}

double number(const Value& value) {
    require_plain(value, "a number");
    return parse_number(value.text, value.key, value.where());
}

bool boolean(const Value& value) {
    require_plain(value, "true or false");
    if (value.text == "true") return true;
    if (value.text == "false") return false;
    const bool yes = value.text == "yes" || value.text == "on" || value.text == "True" || value.text == "1";
    const bool no = value.text == "no" || value.text == "off" || value.text == "False" || value.text == "0";
    throw mistyped(value, "true or false", yes ? "write true" : no ? "write false" : "");
}

std::string text(const Value& value) { return scalar(value, "text"); }

const std::string& scalar(const Value& value, const std::string& expected) {
    if (value.kind != Value::Kind::scalar) throw mistyped(value, expected);
    return value.text;
}

std::size_t choice(const Value& value, std::span<const std::string_view> names) {
    const std::string expected = fmt::format("one of {}", fmt::join(names, ", "));
    const std::string& word = scalar(value, expected);
    for (std::size_t i = 0; i < names.size(); ++i) {
        if (names[i] == word) return i;
    }
    const std::string near = did_you_mean(word, {names.begin(), names.end()});
    throw mistyped(value, expected, near.empty() ? "" : fmt::format("did you mean {}?", near));
}

}  // namespace headroom
