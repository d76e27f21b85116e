// SPDX-License-Identifier: Apache-2.0
// Which ranks talk to each other, and over what: NVLink inside a node, NICs between nodes.
#pragma once

#include <array>

#include "models/cluster.hpp"
#include "models/recipe.hpp"
#include "models/schedule.hpp"

namespace headroom {

struct GroupShape {
    int ranks = 1;
    int ranks_per_node = 1;  ///< of this group
    bool crosses() const { return ranks > ranks_per_node; }
};

struct Topology {
    std::array<GroupShape, 4> groups;  ///< by CommGroup
    int gpus_per_node = 1;
};

/// Ranks are numbered ring-major: the Ulysses ranks of a group stand side by side, ring neighbours one Ulysses degree
/// apart, and sharding groups are whole blocks of ranks.
Topology topology(const Recipe& recipe, const Cluster& cluster);

}  // namespace headroom
