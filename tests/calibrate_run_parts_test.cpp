// SPDX-License-Identifier: Apache-2.0
// What a run trains on, and between which ranks.
#include <doctest/doctest.h>

#include <algorithm>
#include <set>

#include "calibrate/attention_limits.hpp"
#include "calibrate/rank_groups.hpp"
#include "calibrate/run/tokens.hpp"
#include "simulator/topology.hpp"
#include "tests/scenario.hpp"

namespace headroom {

TEST_CASE("the tokens of a run say which comes next, and are the same sequence however many ranks share it") {
    const std::vector<std::int64_t> cycle = token_cycle(128256);
    CHECK(cycle.size() == 1024);
    CHECK(std::set(cycle.begin(), cycle.end()).size() == 1024);  // so the next one follows from each
    CHECK(*std::max_element(cycle.begin(), cycle.end()) < 128256);
    CHECK(token_cycle(8).size() == 8);
    CHECK(token_cycle(1) == std::vector<std::int64_t>{0});

    for (const Method method : {Method::ulysses, Method::usp, Method::fpdt}) {
        Scenario scenario(method, 16 * kibi);
        scenario.settings.implementation = Implementation::lean;
        scenario.cluster.gpus_per_node = 4;
        if (method == Method::usp) scenario.settings.ulysses = 2;
        if (method == Method::fpdt) scenario.settings.chunk_tokens = Tokens{4 * kibi};
        std::vector<int> seen(16 * kibi, 0);
        for (int rank = 0; rank < 4; ++rank) {
            Workload work = scenario.workload();
            work.ring_rank = ring_rank(work.recipe, rank);
            const std::vector<std::int64_t> positions = row_positions(work, rank);
            const std::vector<std::int64_t> tokens = tokens_and_labels(work, rank);
            REQUIRE(positions.size() == 4 * kibi);
            REQUIRE(tokens.size() == 8 * kibi);
            for (std::size_t row = 0; row < positions.size(); ++row) {
                const auto position = static_cast<std::size_t>(positions[row]);
                ++seen[position];
                CHECK(tokens[row] == cycle[position % 1024]);
                CHECK(tokens[positions.size() + row] == cycle[(position + 1) % 1024]);
            }
        }
        CHECK(std::all_of(seen.begin(), seen.end(), [](int times) { return times == 1; }));
    }
}

TEST_CASE("every attention of a step finds its kernel's workspace among the schedule's tensors") {
    for (const Method method : {Method::ulysses, Method::ring, Method::usp, Method::upipe, Method::fpdt}) {
        Scenario scenario(method, 512 * kibi);
        scenario.settings.implementation = Implementation::lean;
        scenario.settings.attention_kernel = AttentionKernel::cudnn;
        scenario.settings.sharding_strategy = ShardingStrategy::fsdp;
        scenario.settings.precision_parameters = scenario.settings.precision_reduction = NumberFormat::fp32;
        if (method == Method::usp) scenario.settings.ulysses = 2;
        scenario.model.layers = 1;
        Schedule schedule;
        build_described_step(scenario.workload(), schedule);
        int seen = 0;
        for (const Description& one : schedule.descriptions) {
            const auto* call = std::get_if<AttentionCall>(&one.computation);
            const Attention& shape = schedule.events[one.event].attention;
            if (call == nullptr || !shape.backward) continue;
            CAPTURE(to_string(method));
            if (shape.heads == shape.kv_heads) {
                CHECK(plan_workspace_bytes(shape) <= 256);  // which lies beside
            } else {
                CHECK(call->workspace_bytes >= plan_workspace_bytes(shape));
                CHECK_FALSE(call->workspace.empty());
            }
            CHECK_FALSE(call->accumulator.empty());
            CHECK_FALSE(call->delta.empty());
            ++seen;
        }
        CHECK(seen > 0);
    }
}

TEST_CASE("groups are ring-major: Ulysses neighbours side by side, ring neighbours one degree apart") {
    Recipe recipe;
    recipe.ulysses = 4;
    recipe.ring = 2;
    recipe.sharding.degree = 16;
    CHECK(group_members(recipe, CommGroup::ulysses, 5) == std::vector<int>{4, 5, 6, 7});
    CHECK(group_members(recipe, CommGroup::ring, 5) == std::vector<int>{1, 5});
    CHECK(group_members(recipe, CommGroup::context, 9) == std::vector<int>{8, 9, 10, 11, 12, 13, 14, 15});
    CHECK(group_members(recipe, CommGroup::ring, 9) == std::vector<int>{9, 13});
    CHECK(group_members(recipe, CommGroup::sharding, 9).size() == 16);
    CHECK(ring_rank(recipe, 3) == 0);
    CHECK(ring_rank(recipe, 5) == 1);
    CHECK(ring_rank(recipe, 9) == 0);

    // Each group holds the rank itself, and as many ranks as the planner's topology says.
    Cluster cluster = load_cluster("h200");
    cluster.nodes = 2;
    const Topology shape = topology(recipe, cluster);
    for (const CommGroup group : {CommGroup::ulysses, CommGroup::ring, CommGroup::context, CommGroup::sharding}) {
        for (int rank = 0; rank < 16; ++rank) {
            const std::vector<int> members = group_members(recipe, group, rank);
            CHECK(std::count(members.begin(), members.end(), rank) == 1);
            CHECK(static_cast<int>(members.size()) == shape.groups[static_cast<std::size_t>(group)].ranks);
        }
    }
}

TEST_CASE("only groups that a schedule talks in, and that have peers, need a communicator") {
    Scenario scenario(Method::usp, 256 * kibi);
    scenario.settings.implementation = Implementation::lean;
    scenario.cluster.gpus_per_node = 2;
    Schedule schedule;
    const auto groups = [&](int ulysses) {
        scenario.settings.ulysses = ulysses;
        build_training_step(scenario.workload(), schedule);
        return groups_in_use(schedule, scenario.recipe());
    };
    CHECK(groups(2) == std::vector<CommGroup>{CommGroup::ulysses, CommGroup::sharding});
    CHECK(groups(1) == std::vector<CommGroup>{CommGroup::ring, CommGroup::sharding});
}

}  // namespace headroom
