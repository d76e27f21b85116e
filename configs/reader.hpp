// SPDX-License-Identifier: Apache-2.0
// A strict reading of YAML and JSON: every value knows its file, line, column and key, and is what it was written as.
// `010`, `yes` and `1e6` never turn into something else, and two values for one key are an error.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "models/error.hpp"

namespace headroom {

struct Value {
    enum class Kind { null, scalar, list, map };
    Kind kind = Kind::null;
    std::string key;    ///< dotted from the top of the file: `offload.block_inputs`, `layer_types[3]`
    std::string name;   ///< the last part of `key`
    std::string place;  ///< `file:line:column` of the value, or a flag
    std::string text;   ///< of a scalar
    bool quoted = false;
    std::vector<Value> items;  ///< entries of a list, or values of a map in the order of the file

    bool is_map() const { return kind == Kind::map; }
    bool is_list() const { return kind == Kind::list; }
    bool is_null() const { return kind == Kind::null; }
    /// `file:line:column: key`
    std::string where() const;
};

/// The bytes of a text file. Throws Error for what cannot be read, is empty, binary or larger than a config can be.
std::string read_text_file(const std::string& path);
/// Parses one YAML or JSON document. `file` names it in errors.
Value parse_yaml(const std::string& text, const std::string& file);

/// The value under `name`; nullptr when absent. Throws when the map has the key twice.
const Value* find(const Value& map, std::string_view name);
/// Throws for keys that are not in `known`, with the nearest known one, and for keys that stand twice.
void reject_unknown_keys(const Value& map, std::span<const std::string> known);

// What a value is as a type. Each throws Error naming key, place and what was found instead.
std::int64_t integer(const Value& value);
double number(const Value& value);
bool boolean(const Value& value);
std::string text(const Value& value);
/// A scalar that carries a unit or a word, quoted or not.
const std::string& scalar(const Value& value, const std::string& expected);
/// The index in `names` of the word that was written.
std::size_t choice(const Value& value, std::span<const std::string_view> names);

/// How a value reads in a sentence: 'yes', null, a list.
std::string shown(const Value& value);

}  // namespace headroom
