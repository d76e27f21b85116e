// SPDX-License-Identifier: Apache-2.0
// What a run executes for an event, and between which ranks.
#include <doctest/doctest.h>

#include <algorithm>

#include "calibrate/rank_groups.hpp"
#include "calibrate/real_kernel.hpp"
#include "simulator/topology.hpp"
#include "tests/scenario.hpp"

namespace headroom {

namespace {

Event memory_event(const char* name, MemoryKernel kernel, std::int64_t read, std::int64_t written,
                   std::int32_t count = 1) {
    Event event{};
    event.kind = EventKind::memory_bound;
    event.name = name;
    event.memory_bound = {kernel, read, written, count};
    return event;
}

}  // namespace

TEST_CASE("a memory-bound event becomes the kernel of its name, over the bytes it counts") {
    const MemoryLaunch up = real_kernel(memory_event("attention output to fp32", MemoryKernel::eager, 300, 300));
    CHECK(up.kernel == RealKernel::cast_up);
    CHECK(up.elements == 100);  // 2 read, 4 written
    CHECK(real_kernel(memory_event("gradients from fp32", MemoryKernel::eager, 9, 9)).kernel == RealKernel::cast_down);
    const MemoryLaunch merge = real_kernel(memory_event("merge partial attention", MemoryKernel::eager, 500, 500));
    CHECK(merge.kernel == RealKernel::merge);
    CHECK(merge.elements == 100);  // fp32 sum read and written, bf16 block read
    CHECK(real_kernel(memory_event("copy in gradients", MemoryKernel::copy, 2, 4)).kernel == RealKernel::cast_up);
    CHECK(real_kernel(memory_event("copy out block", MemoryKernel::copy, 4, 4)).kernel == RealKernel::copy);
    const MemoryLaunch steps = real_kernel(memory_event("clip and AdamW", MemoryKernel::optimizer, 2400, 1600, 4));
    CHECK(steps.kernel == RealKernel::move);
    CHECK(steps.read == 600);
    CHECK(steps.written == 400);
    CHECK(real_kernel(memory_event("MLP activation", MemoryKernel::eager, 1, 1)).kernel == RealKernel::move);
}

TEST_CASE("every memory-bound event of the lean methods is executed with the bytes it counts") {
    Schedule schedule;
    for (const Method method : {Method::ulysses, Method::ring, Method::upipe, Method::fpdt}) {
        Scenario scenario(method, 512 * kibi);
        scenario.settings.implementation = Implementation::lean;
        build_training_step(scenario.workload(), schedule);
        int seen = 0;
        for (const Event& event : schedule.events) {
            if (event.kind != EventKind::memory_bound || event.memory_bound.count == 0) continue;
            CAPTURE(event.name);
            const MemoryLaunch work = real_kernel(event);
            const double wanted =
                static_cast<double>(event.memory_bound.read + event.memory_bound.written) / event.memory_bound.count;
            CHECK(static_cast<double>(bytes_moved(work)) == doctest::Approx(wanted).epsilon(0.001));
            ++seen;
        }
        CHECK(seen > 20);
    }
}

TEST_CASE("products know their place in a linear layer by name") {
    Event event{};
    event.name = "MLP in, weight gradient";
    CHECK(product_role(event) == ProductRole::weight_gradient);
    event.name = "output projection, input gradient";
    CHECK(product_role(event) == ProductRole::input_gradient);
    event.name = "head";
    CHECK(product_role(event) == ProductRole::forward);
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
