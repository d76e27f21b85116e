// SPDX-License-Identifier: Apache-2.0
#include "calibrate/rank_groups.hpp"

#include <array>

namespace headroom {

std::vector<int> group_members(const Recipe& recipe, CommGroup group, int rank) {
    const int context = recipe.context_parallel();
    const int block = rank / context * context;  // of ranks that share a sequence
    const auto run = [](int first, int count, int stride) {
        std::vector<int> members;
        for (int i = 0; i < count; ++i) members.push_back(first + i * stride);
        return members;
    };
    switch (group) {
        case CommGroup::ulysses:
            return run(rank / recipe.ulysses * recipe.ulysses, recipe.ulysses, 1);
        case CommGroup::ring:
            return run(block + rank % recipe.ulysses, recipe.ring, recipe.ulysses);
        case CommGroup::context:
            return run(block, context, 1);
        case CommGroup::sharding:
            break;
    }
    const int degree = recipe.sharding.degree;
    return run(rank / degree * degree, degree, 1);
}

std::vector<CommGroup> groups_in_use(const Schedule& schedule, const Recipe& recipe) {
    std::array<bool, 4> used{};
    for (const Event& event : schedule.events) {
        if (event.kind == EventKind::collective) used[static_cast<std::size_t>(event.collective.group)] = true;
    }
    std::vector<CommGroup> groups;
    for (const CommGroup group : {CommGroup::ulysses, CommGroup::ring, CommGroup::context, CommGroup::sharding}) {
        const bool several = group_members(recipe, group, 0).size() > 1;
        if (used[static_cast<std::size_t>(group)] && several) groups.push_back(group);
    }
    return groups;
}

int ring_rank(const Recipe& recipe, int rank) { return rank % recipe.context_parallel() / recipe.ulysses; }

}  // namespace headroom
