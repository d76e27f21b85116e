// SPDX-License-Identifier: Apache-2.0
#include "simulator/topology.hpp"

#include <algorithm>

namespace headroom {

namespace {

/// `ranks` members, `stride` apart.
GroupShape shape(int ranks, int stride, int gpus_per_node) {
    const int inside = std::max(1, gpus_per_node / std::max(1, stride));
    return {std::max(1, ranks), std::min(std::max(1, ranks), inside)};
}

}  // namespace

Topology topology(const Recipe& recipe, const Cluster& cluster) {
    const int node = cluster.gpus_per_node;
    Topology result;
    result.gpus_per_node = node;
    result.groups[static_cast<std::size_t>(CommGroup::ulysses)] = shape(recipe.ulysses, 1, node);
    result.groups[static_cast<std::size_t>(CommGroup::ring)] = shape(recipe.ring, recipe.ulysses, node);
    result.groups[static_cast<std::size_t>(CommGroup::context)] = shape(recipe.context_parallel(), 1, node);
    result.groups[static_cast<std::size_t>(CommGroup::sharding)] = shape(recipe.sharding.degree, 1, node);
    return result;
}

}  // namespace headroom
