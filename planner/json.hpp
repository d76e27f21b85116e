// SPDX-License-Identifier: Apache-2.0
// The JSON objects that several documents share. Apart from report.hpp because the JSON library is slow to compile.
#pragma once

#include <nlohmann/json.hpp>

#include "planner/max_context.hpp"
#include "planner/plan.hpp"
#include "planner/setting_values.hpp"

namespace headroom {

using Json = nlohmann::ordered_json;

/// Dotted keys become nested objects, monostate is left out: a recipe file can be made from it.
Json json_of(const std::vector<NamedSetting>& settings);
Json json_of(const Transformer& model);
Json json_of(const Cluster& cluster);
Json json_of(const Plan& plan);  ///< without schema_version, to be embedded

struct Suspects;
Json json_of(const Suspects& suspects);
/// null for a text that is empty.
inline Json text_or_null(const std::string& text) { return text.empty() ? Json() : Json(text); }

/// Indented, ended by a newline; bytes that are not UTF-8 (from file names) are replaced.
std::string document(const Json& json);

}  // namespace headroom
