// SPDX-License-Identifier: Apache-2.0
#include "calibrate/blocks_only.hpp"

#include <algorithm>
#include <string_view>
#include <utility>
#include <vector>

namespace headroom {
namespace {

bool is_block(const Segment& segment) {
    const std::string_view name = segment.name;
    return name == "the only block" || name == "first block" || name == "middle blocks" || name == "last block";
}

bool stays_whole(const Segment& segment) { return segment.phase == Phase::setup || is_block(segment); }

/// Writes parts of a step into another schedule, descriptions and all.
class Cutter {
 public:
    Cutter(const Schedule& step, TensorId parameters) : step_(step), parameters_(parameters) {
        result_.tensors = step.tensors;
        result_.syncs = step.syncs;
        for (const Event& event : step.events) {
            if (event.kind == EventKind::allocate && event.id == parameters) parameter_bytes_ = event.bytes;
        }
    }

    std::uint32_t size() const { return static_cast<std::uint32_t>(result_.events.size()); }
    void copy(std::uint32_t first, std::uint32_t last) {
        const std::uint32_t begin = size();
        result_.events.insert(result_.events.end(), step_.events.begin() + first, step_.events.begin() + last);
        for (const Description& one : step_.descriptions) {
            if (one.event < first || one.event >= last) continue;
            result_.descriptions.push_back({one.event - first + begin, one.computation});
        }
    }
    void allocation(const Event& event) {
        result_.events.push_back(event);
        if (event.kind == EventKind::allocate && event.place == Place::device) give_numbers(event);
    }
    Schedule& result() { return result_; }

 private:
    void give_numbers(const Event& tensor) {
        const std::int64_t most = parameter_bytes_ / 4 / 8 * 8;  // whole packs of 16 bytes
        if (most == 0 || step_.descriptions.empty()) return;
        std::int32_t launches = 0;
        for (std::int64_t place = 0; place < tensor.bytes / 2; place += most, ++launches) {
            const std::int64_t elements = std::min(most, tensor.bytes / 2 - place);
            result_.descriptions.push_back(
                {size(), Convert{parameters_, View(tensor.id) + 2 * place, elements, false}});
        }
        Event event{};
        event.kind = EventKind::memory_bound;
        event.name = "numbers for the blocks";
        event.memory_bound = {MemoryKernel::eager, 2 * tensor.bytes, tensor.bytes, launches};
        result_.events.push_back(event);
    }

    const Schedule& step_;
    TensorId parameters_;
    std::int64_t parameter_bytes_ = 0;
    Schedule result_;
};

}  // namespace

Schedule blocks_only(const Schedule& step, TensorId parameters) {
    std::vector<char> shared(step.tensors, 0);
    const auto visit = [&](const Event& event, std::int64_t) {
        if (event.kind <= EventKind::release) shared[event.id] = 1;
    };
    for (const Segment& segment : step.segments) {
        if (stays_whole(segment)) for_each_written(step, segment, visit);
    }

    Cutter to(step, parameters);
    for (const Routine& routine : step.routines) {
        const std::uint32_t first = to.size();
        to.copy(routine.first, routine.last);
        to.result().routines.push_back({routine.phase, first, to.size()});
    }
    for (Segment segment : step.segments) {
        const std::uint32_t first = to.size();
        if (stays_whole(segment)) {
            to.copy(segment.first, segment.last);
        } else {
            for_each_event(step, segment, [&](const Event& event) {
                if (event.kind <= EventKind::release && shared[event.id]) to.allocation(event);
            });
        }
        segment.first = first;
        segment.last = to.size();
        if (segment.first < segment.last) to.result().segments.push_back(segment);
    }
    return std::move(to.result());
}

}  // namespace headroom
