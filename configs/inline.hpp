// SPDX-License-Identifier: Apache-2.0
// Clusters, recipes and models that stand inside another file, as maps with the keys of their own files.
#pragma once

#include <string>

#include "configs/reader.hpp"
#include "models/cluster.hpp"
#include "models/settings.hpp"
#include "models/transformer.hpp"

namespace headroom {

/// The map as the top of a file of its own: its keys lose what stood before them, its places stay.
Value rooted(const Value& map);

/// Keys of a cluster file, `base` among them.
Cluster read_cluster(const Value& map, const std::string& name);
/// Keys of a recipe file.
Settings read_recipe(const Value& map);
/// A built-in model changed in a few sizes, `{base: llama3-8b, layers: 2}`, or the keys of a config.json.
Transformer read_model(const Value& map, const std::string& name);

}  // namespace headroom
