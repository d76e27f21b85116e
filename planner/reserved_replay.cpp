// SPDX-License-Identifier: Apache-2.0
#include "planner/reserved_replay.hpp"

#include <algorithm>

namespace headroom {

void ReservedReplay::start(const Schedule& schedule, bool expandable_segments) {
    allocator_.reset({.expandable_segments = expandable_segments, .capacity = {}});
    top_.assign(schedule.tensors, nothing);
    entries_.clear();
    unused_ = nothing;
}

void ReservedReplay::allocate(const Event& event) {
    if (event.place != Place::device) return;
    std::uint32_t entry = unused_;
    if (entry == nothing) {
        entry = static_cast<std::uint32_t>(entries_.size());
        entries_.push_back({});
    } else {
        unused_ = entries_[entry].below;
    }
    entries_[entry] = {allocator_.allocate(event.stream, {event.bytes}), top_[event.id]};
    top_[event.id] = entry;
}

void ReservedReplay::release(TensorId id) {
    const std::uint32_t entry = top_[id];
    if (entry == nothing) return;  // a host tensor
    allocator_.release(entries_[entry].block);
    top_[id] = entries_[entry].below;
    entries_[entry].below = unused_;
    unused_ = entry;
}

void ReservedReplay::play(const Schedule& schedule, std::uint32_t first, std::uint32_t last, bool expand) {
    for (std::uint32_t i = first; i < last; ++i) {
        const Event& event = schedule.events[i];
        if (event.kind == EventKind::allocate) {
            allocate(event);
        } else if (event.kind == EventKind::release) {
            release(event.id);
        } else if (event.kind == EventKind::loop) {
            const std::int64_t runs = expand ? event.bytes : std::min<std::int64_t>(event.bytes, 3);
            for (std::int64_t k = 1; k < runs; ++k) play(schedule, i + 1, i + 1 + event.id, expand);
        } else if (event.kind == EventKind::call) {
            const Routine& routine = schedule.routines[event.id];
            play(schedule, routine.first, routine.last, expand);
        }
    }
}

void ReservedReplay::play_lasting(const Schedule& schedule, const Segment& segment, std::uint32_t times) {
    net_.assign(schedule.tensors, 0);
    lasting_.clear();
    // A loop ends as it began.
    for_each_written(schedule, segment, [&](const Event& event, std::int64_t) {
        if (event.kind > EventKind::release) return;
        net_[event.id] += event.kind == EventKind::allocate ? 1 : -1;
        lasting_.push_back(&event);
    });
    std::erase_if(lasting_, [&](const Event* event) {
        return net_[event->id] == 0 || (net_[event->id] > 0) != (event->kind == EventKind::allocate);
    });
    for (std::uint32_t i = 0; i < times; ++i) {
        for (const Event* event : lasting_) {
            if (event->kind == EventKind::allocate) {
                allocate(*event);
            } else {
                release(event->id);
            }
        }
    }
}

namespace {

/// About 2 ms; a longer run of equal blocks is cut short.
constexpr std::uint64_t affordable_events = 60'000;

}  // namespace

ReservedMemory ReservedReplay::replay(const Schedule& schedule, bool expandable_segments, bool expand) {
    start(schedule, expandable_segments);
    for (const Segment& segment : schedule.segments) {
        std::uint64_t events = 0;
        if (segment.repeat > 3) for_each_written(schedule, segment, [&](const Event&, std::int64_t) { ++events; });
        events *= segment.repeat;
        const std::uint32_t whole = expand || events <= affordable_events ? segment.repeat : 2;
        for (std::uint32_t i = 0; i < whole; ++i) play(schedule, segment.first, segment.last, expand);
        if (whole >= segment.repeat) continue;
        if (segment.repeat > 3) play_lasting(schedule, segment, segment.repeat - 3);
        play(schedule, segment.first, segment.last, expand);
    }
    return {allocator_.peak_reserved(), allocator_.peak_held(), allocator_.peak_allocated()};
}

ReservedMemory ReservedReplay::run(const Schedule& schedule, bool expandable_segments) {
    return replay(schedule, expandable_segments, false);
}

ReservedMemory ReservedReplay::run_expanded(const Schedule& schedule, bool expandable_segments) {
    return replay(schedule, expandable_segments, true);
}

}  // namespace headroom
