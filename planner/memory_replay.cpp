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

void MemoryReplay::HostBytes::add(const HostBytes& change, std::int64_t times) {
    pageable += change.pageable * times;
    pinned_exact += change.pinned_exact * times;
    for (std::size_t i = 0; i < size_classes; ++i) {
        pinned_blocks[i] += change.pinned_blocks[i] * static_cast<std::int32_t>(times);
    }
}

void MemoryReplay::HostBytes::raise_to(const HostBytes& other) {
    pageable = std::max(pageable, other.pageable);
    pinned_exact = std::max(pinned_exact, other.pinned_exact);
    for (std::size_t i = 0; i < size_classes; ++i)
        pinned_blocks[i] = std::max(pinned_blocks[i], other.pinned_blocks[i]);
}

MemoryReplay::HostBytes MemoryReplay::HostBytes::since(const HostBytes& before) const {
    HostBytes change = *this;
    change.add(before, -1);
    return change;
}

void MemoryReplay::Peaks::raise_to(const Peaks& inner, const DeviceBytes& base, std::uint32_t call) {
    for (std::size_t i = 0; i < phase_count; ++i) {
        phases[i].all = std::max(phases[i].all, base.all + inner.phases[i].all);
        phases[i].activations = std::max(phases[i].activations, base.activations + inner.phases[i].activations);
    }
    if (base.all + inner.device <= device) return;
    device = base.all + inner.device;
    at = inner.at;
    at.call = call;
}

/// One tensor more (times = 1) or less (-1) of the slot's kind.
inline void MemoryReplay::count(const Slot& slot, std::int64_t times) {
    const std::int64_t change = times * slot.bytes;
    if (slot.place == Place::device) {
        device_.all += change;
        device_.activations += is_activation(slot.group) ? change : 0;
        return;
    }
    host_touched_ = true;
    if (slot.place == Place::host_pageable) {
        host_.pageable += change;
    } else if (rounds_pinned(slot.group)) {
        host_.pinned_blocks[size_class(slot.bytes)] += static_cast<std::int32_t>(times);
    } else {
        host_.pinned_exact += change;
    }
}

void MemoryReplay::read_events(const Schedule& schedule, std::uint32_t first, std::uint32_t last, Phase& phase,
                               Peaks& peaks) {
    DeviceBytes* highest = &peaks.phases[static_cast<std::size_t>(phase)];
    for (std::uint32_t i = first; i < last; ++i) {
        const Event& event = schedule.events[i];
        if (event.kind > EventKind::call) continue;
        if (event.kind == EventKind::release) {
            count(slots_[event.id], -1);
        } else if (event.kind == EventKind::allocate) {
            Slot& slot = slots_[event.id];
            slot.bytes = event.place == Place::device ? round_up(event.bytes, allocation_unit) : event.bytes;
            slot.group = event.group;
            slot.place = event.place;
            count(slot, 1);
            if (event.place != Place::device) {
                host_peak_.raise_to(host_);
                continue;
            }
            highest->activations = std::max(highest->activations, device_.activations);
            highest->all = std::max(highest->all, device_.all);
            if (device_.all > peaks.device) {
                peaks.device = device_.all;
                peaks.at.event = i;
                peaks.at.phase = phase;
                peaks.at.call = Moment::no_call;
            }
        } else if (event.kind == EventKind::loop) {
            // A loop ends with as many bytes as it began, so every run of its body peaks alike: one is enough.
            for (std::int64_t k = 1; expand_ && k < event.bytes; ++k) {
                read_events(schedule, i + 1, i + 1 + event.id, phase, peaks);
            }
        } else {
            if (event.kind == EventKind::call) {
                call(schedule, i, phase, peaks);
            } else {
                phase = static_cast<Phase>(event.id);
            }
            highest = &peaks.phases[static_cast<std::size_t>(phase)];
        }
    }
}

void MemoryReplay::call(const Schedule& schedule, std::uint32_t at, Phase& phase, Peaks& peaks) {
    const std::uint32_t id = schedule.events[at].id;
    Effect& effect = effects_[id];
    if (!effect.known || expand_) {
        const DeviceBytes device_before = device_;
        const HostBytes host_before = host_;
        const HostBytes peak_before = host_peak_;
        learn(schedule, schedule.routines[id], phase, effect);
        device_ = device_before;
        host_ = host_before;
        host_peak_ = peak_before;
    }
    peaks.raise_to(effect.peaks, device_, at);
    device_.all += effect.device.all;
    device_.activations += effect.device.activations;
    phase = effect.ends_in;
    if (!effect.touches_host) return;
    HostBytes highest = host_;
    highest.add(effect.host_peak);
    host_peak_.raise_to(highest);
    host_.add(effect.host);
    host_touched_ = true;
}

/// Reads a routine from zero bytes on.
void MemoryReplay::learn(const Schedule& schedule, const Routine& routine, Phase phase, Effect& effect) {
    device_ = {};
    host_ = host_peak_ = {};
    const bool touched_before = host_touched_;
    host_touched_ = false;
    effect.peaks = {};
    effect.ends_in = phase;
    read_events(schedule, routine.first, routine.last, effect.ends_in, effect.peaks);
    effect.known = true;
    effect.touches_host = host_touched_;
    effect.device = device_;
    effect.host = host_;
    effect.host_peak = host_peak_;
    host_touched_ = touched_before;
}

void MemoryReplay::read(const Schedule& schedule, std::uint32_t index, std::uint32_t repetition) {
    const Segment& segment = schedule.segments[index];
    Phase phase = segment.phase;
    Peaks peaks;
    read_events(schedule, segment.first, segment.last, phase, peaks);
    for (std::size_t i = 0; i < phase_count; ++i) {
        PhasePeak& peak = profile_.segments[index][i];
        peak.device.value = std::max(peak.device.value, peaks.phases[i].all);
        peak.activations.value = std::max(peak.activations.value, peaks.phases[i].activations);
    }
    if (peaks.device <= profile_.device_peak.value) return;
    profile_.device_peak.value = peaks.device;
    profile_.at = peaks.at;
    profile_.at.segment = index;
    profile_.at.repetition = repetition;
}

const MemoryProfile& MemoryReplay::replay(const Schedule& schedule, bool expand) {
    expand_ = expand;
    slots_.assign(schedule.tensors, {});
    effects_.resize(schedule.routines.size());
    for (Effect& effect : effects_) effect.known = false;
    device_ = {};
    host_ = host_peak_ = {};
    profile_.device_peak = {};
    profile_.at = {};
    profile_.segments.assign(schedule.segments.size(), {});
    for (std::uint32_t index = 0; index < schedule.segments.size(); ++index) {
        const std::uint32_t repeat = schedule.segments[index].repeat;
        if (expand || repeat <= 2) {
            for (std::uint32_t i = 0; i < repeat; ++i) read(schedule, index, i);
            continue;
        }
        // Each repetition starts higher (or lower) than the one before by the same bytes, so the peak is in the first
        // or the last.
        const DeviceBytes device_before = device_;
        const HostBytes host_before = host_;
        host_touched_ = false;
        read(schedule, index, 0);
        const std::int64_t rest = std::int64_t{repeat} - 2;
        device_.all += (device_.all - device_before.all) * rest;
        device_.activations += (device_.activations - device_before.activations) * rest;
        if (host_touched_) host_.add(host_.since(host_before), rest);
        read(schedule, index, repeat - 1);
    }
    host_peak_.raise_to(host_);
    profile_.pageable_peak.value = host_peak_.pageable;
    profile_.pinned_peak.value = host_peak_.pinned_exact;
    for (std::size_t i = 0; i < size_classes; ++i) {
        profile_.pinned_peak.value += std::int64_t{host_peak_.pinned_blocks[i]} << i;
    }
    return profile_;
}

const MemoryProfile& MemoryReplay::run(const Schedule& schedule) { return replay(schedule, false); }

const MemoryProfile& MemoryReplay::run_expanded(const Schedule& schedule) { return replay(schedule, true); }

std::vector<LiveTensors> MemoryReplay::alive_at(const Schedule& schedule, const Moment& moment) const {
    struct Held {
        std::int64_t bytes = 0;  // of one tensor
        std::int64_t count = 0;
        const Event* event = nullptr;
    };
    std::vector<Held> held(schedule.tensors);
    std::vector<std::int64_t> before;
    const auto play = [&](std::uint32_t first, std::uint32_t last, const auto& play_routine) -> void {
        for (std::uint32_t i = first; i < last; ++i) {
            const Event& event = schedule.events[i];
            if (event.kind == EventKind::call) {
                const Routine& routine = schedule.routines[event.id];
                play_routine(routine.first, routine.last, play_routine);
            }
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
            play(segment.first, segment.last, play);
            for (std::size_t i = 0; i < held.size(); ++i) {
                held[i].count += (held[i].count - before[i]) * (std::int64_t{whole} - 1);
            }
        }
        if (index != moment.segment) continue;
        if (moment.call == Moment::no_call) {
            play(segment.first, moment.event + 1, play);
        } else {
            play(segment.first, moment.call, play);
            play(schedule.routines[schedule.events[moment.call].id].first, moment.event + 1, play);
        }
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
        std::int64_t bytes = 0;
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
    std::vector<char> on_host(schedule.tensors, 0);
    std::vector<const Event*> events;  // of one repetition, on the host
    for (const Segment& segment : schedule.segments) {
        events.clear();
        for_each_written(schedule, segment, [&](const Event& event, std::int64_t) {
            if (event.kind == EventKind::allocate) on_host[event.id] = event.place != Place::device;
            if (event.kind <= EventKind::release && on_host[event.id]) events.push_back(&event);
        });
        for (std::uint32_t repetition = 0; repetition < segment.repeat; ++repetition) {
            for (const Event* event : events) {
                if (event->kind == EventKind::release) {
                    now[held[event->id].part] -= held[event->id].bytes;
                    continue;
                }
                const bool rounded = event->place == Place::host_pinned && rounds_pinned(event->group);
                const std::size_t part = part_of(*event);
                held[event->id] = {part, rounded ? std::int64_t{1} << size_class(event->bytes) : event->bytes};
                now[part] += held[event->id].bytes;
                parts[part].bytes.value = std::max(parts[part].bytes.value, now[part]);
            }
        }
    }
    std::erase_if(parts, [](const LiveTensors& part) { return part.bytes.value == 0; });
    std::stable_sort(parts.begin(), parts.end(),
                     [](const LiveTensors& a, const LiveTensors& b) { return a.bytes > b.bytes; });
    return parts;
}

}  // namespace headroom
