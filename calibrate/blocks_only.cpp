// SPDX-License-Identifier: Apache-2.0
#include "calibrate/blocks_only.hpp"

#include <string_view>
#include <vector>

namespace headroom {
namespace {

bool is_block(const Segment& segment) {
    const std::string_view name = segment.name;
    return name == "the only block" || name == "first block" || name == "middle blocks" || name == "last block";
}

bool stays_whole(const Segment& segment) { return segment.phase == Phase::setup || is_block(segment); }

}  // namespace

Schedule blocks_only(const Schedule& step) {
    std::vector<char> shared(step.tensors, 0);
    const auto visit = [&](const Event& event, std::int64_t) {
        if (event.kind <= EventKind::release) shared[event.id] = 1;
    };
    for (const Segment& segment : step.segments) {
        if (stays_whole(segment)) for_each_written(step, segment, visit);
    }

    Schedule result;
    result.tensors = step.tensors;
    result.syncs = step.syncs;
    const auto copy = [&](std::uint32_t first, std::uint32_t last) {
        const auto begin = static_cast<std::uint32_t>(result.events.size());
        result.events.insert(result.events.end(), step.events.begin() + first, step.events.begin() + last);
        return begin;
    };
    for (const Routine& routine : step.routines) {
        const std::uint32_t first = copy(routine.first, routine.last);
        result.routines.push_back({routine.phase, first, static_cast<std::uint32_t>(result.events.size())});
    }
    for (Segment segment : step.segments) {
        auto first = static_cast<std::uint32_t>(result.events.size());
        if (stays_whole(segment)) {
            first = copy(segment.first, segment.last);
        } else {
            for_each_event(step, segment, [&](const Event& event) {
                if (event.kind <= EventKind::release && shared[event.id]) result.events.push_back(event);
            });
        }
        segment.first = first;
        segment.last = static_cast<std::uint32_t>(result.events.size());
        if (segment.first < segment.last) result.segments.push_back(segment);
    }
    return result;
}

}  // namespace headroom
