// SPDX-License-Identifier: Apache-2.0
#include "planner/outside.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace headroom {

namespace {

/// Calls `term(name, peers, bytes)` for the communicator of each group.
template <class Term>
void for_each_term(const Cluster& cluster, const Recipe& recipe, Term term) {
    const auto group = [&](const char* name, int degree, int peers) {
        if (degree >= 2) term(name, peers, cluster.nccl_group + std::int64_t{peers} * cluster.nccl_peer_buffer);
    };
    // Peers on other nodes are reached through the network proxies, whose buffers all of them share: one more.
    const int inside = std::min(recipe.ulysses, cluster.gpus_per_node) - 1;
    const int across = recipe.ulysses > cluster.gpus_per_node ? 1 : 0;
    group("Ulysses", recipe.ulysses, inside + across);
    group("ring", recipe.ring, std::min(2, recipe.ring - 1));
}

/// Of the job as a whole.
Bytes common_communicator(const Cluster& cluster) { return cluster.gpus() > 1 ? cluster.nccl_communicator : Bytes{0}; }

}  // namespace

std::vector<OutsideTerm> outside_terms(const Cluster& cluster, const Recipe& recipe) {
    std::vector<OutsideTerm> terms{{"CUDA context and libraries", cluster.cuda_context}};
    if (cluster.gpus() > 1) terms.push_back({"NCCL, all ranks", common_communicator(cluster)});
    for_each_term(cluster, recipe, [&](const char* name, int peers, Bytes bytes) {
        terms.push_back(
            {fmt::format("NCCL, {} group, buffers for {} peer{}", name, peers, peers == 1 ? "" : "s"), bytes});
    });
    return terms;
}

Bytes outside_bytes(const Cluster& cluster, const Recipe& recipe) {
    Bytes total = cluster.cuda_context + common_communicator(cluster);
    for_each_term(cluster, recipe, [&](const char*, int, Bytes bytes) { total += bytes; });
    return total;
}

Bytes sum(const std::vector<OutsideTerm>& terms) {
    Bytes total;
    for (const OutsideTerm& term : terms) total += term.bytes;
    return total;
}

}  // namespace headroom
