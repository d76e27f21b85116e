// SPDX-License-Identifier: Apache-2.0
#include "planner/plan.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "models/constraints.hpp"
#include "models/error.hpp"
#include "models/shipped.hpp"
#include "models/training_step.hpp"
#include "planner/cudnn_limits.hpp"
#include "planner/evaluate.hpp"
#include "planner/outside.hpp"

namespace headroom {
namespace {

/// "backward, block 1 of 32": blocks are numbered from 0 as the codes do, and run backwards in backward.
std::string describe(const Schedule& schedule, const Moment& moment, std::int64_t layers) {
    const Segment& segment = schedule.segments[moment.segment];
    const std::string phase{to_string(moment.phase)};
    const bool forward = segment.phase == Phase::forward;
    const std::string_view name = segment.name;
    std::int64_t block = -1;
    if (name == "first block" || name == "the only block") block = 0;
    if (name == "last block") block = layers - 1;
    if (name == "middle blocks") block = forward ? 1 + moment.repetition : layers - 2 - moment.repetition;
    if (block < 0) return fmt::format("{}, {}", phase, name);
    return fmt::format("{}, block {} of {}", phase, block, layers);
}

/// What computes at a moment: the nearest event before it, in its routine and then in its segment, that belongs to a
/// layer. Gradients of weights and the like belong to whichever layer makes them.
std::string computing(const Schedule& schedule, const Moment& moment) {
    const auto layer = [&](std::uint32_t from, std::uint32_t first) -> std::string {
        for (std::uint32_t i = from + 1; i-- > first;) {
            const Group group = schedule.events[i].group;
            if (group == Group::mlp) return "MLP";
            if (group == Group::loss) return "loss";
            if (group == Group::attention || group == Group::communication) return "attention";
        }
        return "";
    };
    const Segment& segment = schedule.segments[moment.segment];
    std::uint32_t at = moment.event;
    if (moment.call != Moment::no_call) {
        const Routine& routine = schedule.routines[schedule.events[moment.call].id];
        if (std::string inside = layer(moment.event, routine.first); !inside.empty()) return inside;
        at = moment.call;
    }
    const std::string before = layer(at, segment.first);
    return before.empty() ? std::string(to_string(schedule.events[moment.event].group)) : before;
}

struct RankMemory {
    MemoryProfile profile;
    ReservedMemory reserved;
    std::string phase, segment, part;
    MemoryPart last;
    std::vector<LiveTensors> alive;
    std::vector<LiveTensors> on_host;
};

RankMemory measure(Evaluator& evaluator, const Workload& work) {
    RankMemory rank;
    build_training_step(work, evaluator.schedule);
    rank.profile = evaluator.replay.run(evaluator.schedule);
    rank.reserved = evaluator.reserved.run(evaluator.schedule, work.recipe.expandable_segments);
    rank.phase = describe(evaluator.schedule, rank.profile.at, work.model.layers);
    rank.part = computing(evaluator.schedule, rank.profile.at);
    rank.segment = evaluator.schedule.segments[rank.profile.at.segment].name;
    const Event& event = evaluator.schedule.events[rank.profile.at.event];
    if (event.kind == EventKind::allocate) rank.last = {event.group, event.name, {event.bytes}};
    rank.alive = evaluator.replay.alive_at(evaluator.schedule, rank.profile.at);
    rank.on_host = evaluator.replay.host_peaks(evaluator.schedule);
    return rank;
}

DeviceMemory device_memory(const Cluster& cluster, const Recipe& recipe, const RankMemory& worst,
                           const RankMemory& rank0, RingRole worst_role) {
    DeviceMemory device;
    device.capacity = cluster.device_memory;
    device.outside = outside_terms(cluster, recipe);
    device.outside_allocator = sum(device.outside);
    device.usable = device.capacity - device.outside_allocator;
    device.peak = worst.profile.device_peak;
    device.unreturnable = std::max(Bytes{0}, worst.reserved.peak_held - worst.profile.device_peak);
    device.peak_reserved = std::max(worst.reserved.peak_reserved, rank0.reserved.peak_reserved);
    device.rank0_peak = rank0.profile.device_peak;
    device.peak_rank = worst_role == RingRole::first || recipe.ring == 1 ? 0 : recipe.ulysses;
    device.phase = worst.phase;
    device.segment = worst.segment;
    device.last = worst.last;
    device.part = worst.part;
    for (const LiveTensors& tensor : worst.alive) {
        if (tensor.place == Place::device) device.parts.push_back({tensor.group, tensor.name, tensor.bytes});
    }
    device.fits = device.peak + device.unreturnable <= device.usable;
    return device;
}

HostMemory host_memory(const Cluster& cluster, const RankMemory& rank) {
    HostMemory host;
    host.capacity_per_node = cluster.host_memory;
    host.usable_per_node = usable_host_memory(cluster);
    host.pinned_per_node = rank.profile.pinned_peak * cluster.gpus_per_node;
    host.pageable_per_node = rank.profile.pageable_peak * cluster.gpus_per_node;
    host.peak_per_node = host.pinned_per_node + host.pageable_per_node;
    for (const LiveTensors& tensor : rank.on_host) {
        host.parts.push_back({tensor.name, tensor.place, tensor.bytes * cluster.gpus_per_node});
    }
    host.fits = host.peak_per_node <= host.usable_per_node;
    return host;
}

double gib(Bytes bytes) { return in_gib(bytes); }

std::string verdict_sentence(const Plan& plan) {
    const DeviceMemory& device = plan.device;
    const Bytes need = device.peak + device.unreturnable;
    if (plan.fits) {
        return fmt::format("fits: {:.1f} GiB of the {:.1f} GiB that a GPU can give, {:.1f} GiB to spare", gib(need),
                           gib(device.usable), gib(device.usable - need));
    }
    if (!device.fits) {
        return fmt::format("does not fit: {:.1f} GiB needed, {:.1f} GiB usable on a GPU, {:.1f} GiB short ({})",
                           gib(need), gib(device.usable), gib(need - device.usable), device.phase);
    }
    return fmt::format(
        "does not fit: {:.0f} GiB of host memory needed on each node, {:.0f} GiB usable, {:.0f} GiB short",
        gib(plan.host.peak_per_node), gib(plan.host.usable_per_node),
        gib(plan.host.peak_per_node - plan.host.usable_per_node));
}

}  // namespace

Plan make_plan(const Transformer& model, const Cluster& cluster, const Recipe& recipe, const TimeBasis& basis) {
    Evaluator evaluator;
    return make_plan(model, cluster, recipe, basis, evaluator);
}

Plan make_plan(const Transformer& model, const Cluster& cluster, const Recipe& recipe, const TimeBasis& basis,
               Evaluator& evaluator) {
    Plan plan;
    plan.model = model;
    plan.cluster = cluster;
    plan.recipe = recipe;
    plan.warnings = warnings(recipe, model, cluster);
    plan.beyond_shipped_code = beyond_shipped_code(recipe, cluster);
    if (!plan.beyond_shipped_code.empty()) {
        plan.warnings.push_back("beyond the shipped code: " + plan.beyond_shipped_code);
    }

    RankMemory worst = measure(evaluator, make_workload(model, cluster, recipe, RingRole::later));
    const bool cudnn = recipe.attention_kernel == AttentionKernel::cudnn;
    if (const std::string warning = cudnn ? cudnn_warning(evaluator.schedule) : ""; !warning.empty()) {
        plan.warnings.push_back(warning);
    }
    RingRole role = RingRole::later;
    RankMemory rank0 = worst;
    if (recipe.ring > 1) {
        rank0 = measure(evaluator, make_workload(model, cluster, recipe, RingRole::first));
        if (rank0.profile.device_peak > worst.profile.device_peak) {
            worst = rank0;
            role = RingRole::first;
        }
    }
    plan.device = device_memory(cluster, recipe, worst, rank0, role);
    plan.host = host_memory(cluster, worst);
    plan.fits = plan.device.fits && plan.host.fits;
    plan.verdict = verdict_sentence(plan);
    const Bytes margin = plan.device.usable - plan.device.peak - plan.device.unreturnable;
    if (plan.fits && margin < plan.device.usable / 50) {
        plan.warnings.push_back(
            "less than 2% of the GPU's memory to spare: expect allocator retries, or lower the context");
    }
    const Bytes host_margin = plan.host.usable_per_node - plan.host.peak_per_node;
    if (plan.host.fits && host_margin < plan.host.capacity_per_node / 5) {
        plan.warnings.push_back(fmt::format("host memory is a warning zone: {:.0f} of {:.0f} GiB of a node are used",
                                            gib(plan.host.peak_per_node), gib(plan.host.capacity_per_node)));
    }
    add_step(plan, basis, evaluator);
    return plan;
}

void add_step(Plan& plan, const TimeBasis& basis, Evaluator& evaluator) {
    if (!basis.calibration) return;
    try {
        check(*basis.calibration, plan.recipe.attention_kernel);
    } catch (const Error& error) {
        plan.warnings.push_back(fmt::format("no step time: {}; {}", error.what(), error.hint()));
        return;
    }
    plan.step = predict(plan.model, plan.cluster, plan.recipe, *basis.calibration, evaluator, basis.count);
    for (std::string& warning : warnings(*plan.step)) plan.warnings.push_back(std::move(warning));
}

}  // namespace headroom
