// SPDX-License-Identifier: Apache-2.0
#include "planner/memory_replay.hpp"

#include <algorithm>
#include <bit>
#include <cstring>

namespace headroom {
namespace {

constexpr std::int64_t allocation_unit = 512;  // PyTorch's smallest block

/// log2 of the power of two that PyTorch's pinned allocator would hand out.
std::size_t size_class(std::int64_t bytes) {
    return static_cast<std::size_t>(std::bit_width(static_cast<std::uint64_t>(std::max<std::int64_t>(bytes, 1)) - 1));
}

/// Tensors that pass through PyTorch's pinned allocator one by one; states and chunk buffers are sized as they are.
bool rounds_pinned(Group group) { return group == Group::saved; }

}  // namespace

void MemoryReplay::start(const Schedule& schedule) {
    slots_.assign(schedule.tensors, {});
    now_ = {};
    peak_ = {};
    profile_.device_peak = {};
    profile_.at = {};
    profile_.segments.assign(schedule.segments.size(), {});
}

void MemoryReplay::apply(const Event& event) {
    Slot& slot = slots_[event.id];
    std::int64_t sign = -1;
    if (event.kind == EventKind::allocate) {
        sign = 1;
        slot.bytes = event.place == Place::device ? round_up(event.bytes, allocation_unit) : event.bytes;
        slot.group = event.group;
        slot.place = event.place;
    }
    const std::int64_t change = sign * slot.bytes;
    switch (slot.place) {
        case Place::device:
            now_.device += change;
            if (is_activation(slot.group)) now_.activations += change;
            return;
        case Place::host_pageable:
            now_.pageable += change;
            break;
        case Place::host_pinned:
            if (rounds_pinned(slot.group)) {
                now_.pinned_blocks[size_class(slot.bytes)] += static_cast<std::int32_t>(sign);
            } else {
                now_.pinned_exact += change;
            }
            break;
    }
}

void MemoryReplay::note_host_peaks(const Counters& counters) {
    peak_.pageable = std::max(peak_.pageable, counters.pageable);
    peak_.pinned_exact = std::max(peak_.pinned_exact, counters.pinned_exact);
    for (std::size_t i = 0; i < size_classes; ++i) {
        peak_.pinned_blocks[i] = std::max(peak_.pinned_blocks[i], counters.pinned_blocks[i]);
    }
}

void MemoryReplay::read(const Schedule& schedule, const Segment& segment, std::uint32_t index,
                        std::uint32_t repetition) {
    Moment at{index, repetition, 0, segment.phase};
    read_events(schedule, segment.first, segment.last, at);
}

void MemoryReplay::read_events(const Schedule& schedule, std::uint32_t first, std::uint32_t last, Moment& at) {
    PhasePeak* peak = &profile_.segments[at.segment][static_cast<std::size_t>(at.phase)];
    for (std::uint32_t i = first; i < last; ++i) {
        const Event& event = schedule.events[i];
        if (event.kind > EventKind::loop) continue;
        if (event.kind == EventKind::phase) {
            at.phase = static_cast<Phase>(event.id);
            peak = &profile_.segments[at.segment][event.id];
            continue;
        }
        if (event.kind == EventKind::loop) {
            // A loop ends with as many bytes as it began, so every run of its body peaks alike: one is enough.
            for (std::int64_t k = 1; expand_loops_ && k < event.bytes; ++k) {
                read_events(schedule, i + 1, i + 1 + event.id, at);
            }
            continue;
        }
        apply(event);
        if (event.kind == EventKind::release) continue;
        if (event.place != Place::device) {
            note_host_peaks(now_);
            continue;
        }
        peak->activations.value = std::max(peak->activations.value, now_.activations);
        peak->device.value = std::max(peak->device.value, now_.device);
        if (now_.device > profile_.device_peak.value) {
            profile_.device_peak.value = now_.device;
            profile_.at = {at.segment, at.repetition, i, at.phase};
        }
    }
}

void MemoryReplay::finish() {
    note_host_peaks(now_);
    profile_.pageable_peak.value = peak_.pageable;
    profile_.pinned_peak.value = peak_.pinned_exact;
    for (std::size_t i = 0; i < size_classes; ++i) {
        profile_.pinned_peak.value += std::int64_t{peak_.pinned_blocks[i]} << i;
    }
}

void MemoryReplay::skip(const Counters& before, std::int64_t repetitions) {
    now_.device += (now_.device - before.device) * repetitions;
    now_.activations += (now_.activations - before.activations) * repetitions;
    now_.pageable += (now_.pageable - before.pageable) * repetitions;
    now_.pinned_exact += (now_.pinned_exact - before.pinned_exact) * repetitions;
    for (std::size_t i = 0; i < size_classes; ++i) {
        now_.pinned_blocks[i] +=
            (now_.pinned_blocks[i] - before.pinned_blocks[i]) * static_cast<std::int32_t>(repetitions);
    }
}

const MemoryProfile& MemoryReplay::run(const Schedule& schedule) {
    expand_loops_ = false;
    start(schedule);
    for (std::uint32_t index = 0; index < schedule.segments.size(); ++index) {
        const Segment& segment = schedule.segments[index];
        if (segment.repeat == 1) {
            read(schedule, segment, index, 0);
            continue;
        }
        // Each repetition starts higher (or lower) than the one before by the same bytes, so the peak is in the first
        // or the last.
        const Counters before = now_;
        read(schedule, segment, index, 0);
        skip(before, std::int64_t{segment.repeat} - 2);
        read(schedule, segment, index, segment.repeat - 1);
    }
    finish();
    return profile_;
}

const MemoryProfile& MemoryReplay::run_expanded(const Schedule& schedule) {
    expand_loops_ = true;
    start(schedule);
    for (std::uint32_t index = 0; index < schedule.segments.size(); ++index) {
        for (std::uint32_t i = 0; i < schedule.segments[index].repeat; ++i) {
            read(schedule, schedule.segments[index], index, i);
        }
    }
    finish();
    return profile_;
}

std::vector<LiveTensors> MemoryReplay::alive_at(const Schedule& schedule, const Moment& moment) const {
    struct Held {
        std::int64_t bytes = 0;  // of one tensor
        std::int64_t count = 0;
        const Event* event = nullptr;
    };
    std::vector<Held> held(schedule.tensors);
    std::vector<std::int64_t> before;
    const auto play = [&](std::uint32_t first, std::uint32_t last) {
        for (std::uint32_t i = first; i < last; ++i) {
            const Event& event = schedule.events[i];
            if (event.kind > EventKind::release) continue;
            Held& tensor = held[event.id];
            if (event.kind == EventKind::release) {
                --tensor.count;
                continue;
            }
            tensor.bytes = event.place == Place::device ? round_up(event.bytes, allocation_unit) : event.bytes;
            tensor.event = &event;
            ++tensor.count;
        }
    };
    for (std::uint32_t index = 0; index <= moment.segment; ++index) {
        const Segment& segment = schedule.segments[index];
        const std::uint32_t whole = index == moment.segment ? moment.repetition : segment.repeat;
        if (whole > 0) {
            before.resize(held.size());
            for (std::size_t i = 0; i < held.size(); ++i) before[i] = held[i].count;
            play(segment.first, segment.last);
            for (std::size_t i = 0; i < held.size(); ++i) {
                held[i].count += (held[i].count - before[i]) * (std::int64_t{whole} - 1);
            }
        }
        if (index == moment.segment) play(segment.first, moment.event + 1);
    }

    std::vector<LiveTensors> parts;
    for (const Held& tensor : held) {
        if (tensor.count <= 0 || tensor.bytes == 0) continue;
        const Event& event = *tensor.event;
        const auto same = std::find_if(parts.begin(), parts.end(), [&](const LiveTensors& part) {
            return part.group == event.group && part.place == event.place && std::strcmp(part.name, event.name) == 0;
        });
        const Bytes bytes{tensor.bytes * tensor.count};
        if (same == parts.end()) {
            parts.push_back({event.name, event.group, event.place, bytes});
        } else {
            same->bytes += bytes;
        }
    }
    std::stable_sort(parts.begin(), parts.end(), [](const LiveTensors& a, const LiveTensors& b) {
        return a.group != b.group ? a.group < b.group : a.bytes > b.bytes;
    });
    return parts;
}

std::vector<LiveTensors> MemoryReplay::host_peaks(const Schedule& schedule) const {
    struct Held {
        std::size_t part = 0;
        std::int64_t bytes = 0;  // 0: not on the host
    };
    std::vector<Held> held(schedule.tensors);
    std::vector<LiveTensors> parts;
    std::vector<std::int64_t> now;
    const auto part_of = [&](const Event& event) {
        for (std::size_t i = 0; i < parts.size(); ++i) {
            if (parts[i].place == event.place && std::strcmp(parts[i].name, event.name) == 0) return i;
        }
        parts.push_back({event.name, event.group, event.place, {}});
        now.push_back(0);
        return parts.size() - 1;
    };
    for (const Segment& segment : schedule.segments) {
        for (std::uint32_t repetition = 0; repetition < segment.repeat; ++repetition) {
            bool any = false;
            for (const Event& event : schedule.events_of(segment)) {  // one run of a loop: all peak alike
                if (event.kind == EventKind::release && held[event.id].bytes > 0) {
                    now[held[event.id].part] -= held[event.id].bytes;
                    any = true;
                }
                if (event.kind != EventKind::allocate) continue;
                held[event.id].bytes = 0;
                if (event.place == Place::device || event.bytes == 0) continue;
                const bool rounded = event.place == Place::host_pinned && rounds_pinned(event.group);
                const std::size_t part = part_of(event);
                held[event.id] = {part, rounded ? std::int64_t{1} << size_class(event.bytes) : event.bytes};
                now[part] += held[event.id].bytes;
                parts[part].bytes.value = std::max(parts[part].bytes.value, now[part]);
                any = true;
            }
            if (!any) break;  // nor will the other repetitions touch the host
        }
    }
    std::stable_sort(parts.begin(), parts.end(),
                     [](const LiveTensors& a, const LiveTensors& b) { return a.bytes > b.bytes; });
    return parts;
}

}  // namespace headroom
