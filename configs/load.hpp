// SPDX-License-Identifier: Apache-2.0
// The edge where names, files and `key=value` become values. Everything here throws Error with file:line:column or
// the name that was typed, and a hint.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "models/cluster.hpp"
#include "models/settings.hpp"
#include "models/transformer.hpp"

namespace headroom {

/// A model as its file describes it: always the exact parameter totals, and a Transformer when it can be planned.
struct ModelFile {
    std::string name;
    std::string source;                  ///< "built-in" or the path of the config
    Transformer transformer;             ///< meaningful only when `refusals` is empty
    std::vector<std::string> refusals;   ///< what is not modelled, by name; empty = can be planned
    std::vector<std::string> notes;      ///< e.g. "no num_key_value_heads: every query head has its own KV head"
    std::int64_t total_parameters = 0;   ///< 0 when it cannot be counted either
    std::int64_t active_parameters = 0;  ///< per token; equals total for dense models
};

/// A built-in name (`llama3-8b`), a Hugging Face config.json, or a directory that holds one.
ModelFile load_model_file(const std::string& name_or_path);
/// The same, refusing by name what cannot be planned.
Transformer load_model(const std::string& name_or_path);
/// A built-in name (`h100-sxm-80gb`) or a YAML file. `nodes` is 1 unless the file says otherwise.
Cluster load_cluster(const std::string& name_or_path);
/// The method's recipe as its authors ship it. Upstream torchtitan and lean variants differ by implementation.
Settings published_recipe(Method method);
/// A recipe file (YAML with the recipe keys).
Settings load_recipe(const std::string& path);
/// Applies `key=value` as typed after --set; the keys are those of recipe files.
void set(Settings& settings, const std::string& assignment);

std::vector<std::string> builtin_models();
std::vector<std::string> builtin_clusters();

/// `128K` = 131072, `3M`, `1_048_576`, `1e6`, `1.5M` when whole. `where` is the flag or key for the error.
Tokens parse_tokens(std::string_view text, const std::string& where);
/// The closest of `candidates`, or empty when none is near; two or three that begin as typed are joined by "or".
std::string did_you_mean(std::string_view typed, const std::vector<std::string>& candidates);

}  // namespace headroom
