// SPDX-License-Identifier: Apache-2.0
#include "planner/traffic.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <string_view>

namespace headroom {
namespace {

constexpr std::array<std::string_view, 5> kinds{"all-to-all", "all-gather", "reduce-scatter", "ring send", "barrier"};
constexpr std::array<std::string_view, 4> groups{"Ulysses", "ring", "context", "sharding"};

/// Of the bytes of a call, those that leave the GPU over n ranks: all but its own share, by whichever algorithm of
/// NCCL; a message of a ring as it is.
Bytes leaving(const Collective& call, int ranks) {
    if (ranks < 2 || call.kind == CollectiveKind::barrier) return {};
    if (call.kind == CollectiveKind::send_recv) return {call.bytes};
    return {call.bytes - call.bytes / ranks};
}

const Segment* middle(const Schedule& schedule, bool backward) {
    const auto named = [&](std::string_view name) {
        const auto found =
            std::find_if(schedule.segments.begin(), schedule.segments.end(), [&](const Segment& segment) {
                return segment.name == name && (segment.phase != Phase::forward) == backward;
            });
        return found == schedule.segments.end() ? nullptr : &*found;
    };
    for (const std::string_view name : {"middle blocks", "first block", "the only block"}) {
        if (const Segment* segment = named(name)) return segment;
    }
    return nullptr;
}

}  // namespace

Bytes Traffic::total() const {
    Bytes sum;
    for (const Bytes bytes : sent) sum += bytes;
    return sum;
}

std::vector<Traffic> block_traffic(const Schedule& schedule, const Topology& topology) {
    std::vector<Traffic> list;
    const auto add = [&](const std::string& name, Phase phase, Bytes bytes) {
        if (bytes.value == 0) return;
        auto found = std::find_if(list.begin(), list.end(), [&](const Traffic& entry) { return entry.name == name; });
        if (found == list.end()) found = list.insert(list.end(), {name, {}});
        found->sent[static_cast<std::size_t>(phase)] += bytes;
    };
    for (const bool backward : {false, true}) {
        const Segment* segment = middle(schedule, backward);
        if (segment == nullptr) continue;
        Phase phase = segment->phase;
        for_each_event(schedule, *segment, [&](const Event& event) {
            if (event.kind == EventKind::phase) phase = static_cast<Phase>(event.id);
            if (event.kind == EventKind::copy) {
                add(event.copy.to_host ? "copies to the host" : "copies from the host", phase, {event.copy.bytes});
            }
            if (event.kind != EventKind::collective) return;
            const Collective& call = event.collective;
            const auto group = static_cast<std::size_t>(call.group);
            const int ranks = topology.groups[group].ranks;
            add(fmt::format("{} over {} ({})", kinds[static_cast<std::size_t>(call.kind)], ranks, groups[group]), phase,
                leaving(call, ranks));
        });
    }
    return list;
}

}  // namespace headroom
