// SPDX-License-Identifier: Apache-2.0
#include "calibrate/runner.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "models/error.hpp"

namespace headroom {
namespace {

constexpr std::int64_t allocation_unit = 512;  // PyTorch's smallest block, which the prediction counts in
constexpr const char* report_it = "this is a bug: please report it with the command";

}  // namespace

void StreamLaunch::compute(Arithmetic& on) const {
    if (computations.empty()) {
        throw Error("the launch does not say what it computes", "", report_it, ExitCode::failure);
    }
    const auto resolve = [this](const View& view) {
        return static_cast<std::byte*>(tensors.at(view.tensor).address) + view.offset;
    };
    for (const Description& one : computations) perform(on, event, one.computation, resolve);
}

ScheduleRunner::ScheduleRunner(const Schedule& schedule, RunDevice& device)
    : schedule_(schedule), device_(device), tensors_(schedule.tensors), recorded_(schedule.syncs, 0) {
    memory_.segments.resize(schedule.segments.size());
}

void ScheduleRunner::set_up() {
    run(true);
    kept_ = tensors_.size();
}

void ScheduleRunner::step() {
    run(false);
    if (tensors_.size() == kept_) return;
    const std::size_t left = tensors_.size() - kept_;
    const std::string name = tensors_.all().back().name;
    clear();
    throw Error(fmt::format("{} tensors outlive the step, such as '{}'", left, name), "schedule", report_it,
                ExitCode::failure);
}

void ScheduleRunner::clear() noexcept {
    device_.settle();
    for (const LiveTensor& tensor : tensors_.all()) {
        if (tensor.bytes > 0) device_.release(tensor);
    }
    tensors_ = TensorTable(schedule_.tensors);
    device_bytes_ = pinned_bytes_ = pageable_bytes_ = 0;
    kept_ = 0;
}

std::uint32_t ScheduleRunner::index_of(const Event& event) const {
    return static_cast<std::uint32_t>(&event - schedule_.events.data());
}

std::string ScheduleRunner::place() const {
    const Segment& segment = schedule_.segments[now_.segment];
    const std::string repetition =
        segment.repeat > 1 ? fmt::format(" ({} of {})", now_.repetition + 1, segment.repeat) : "";
    return fmt::format("{}{}, {}", segment.name, repetition, to_string(now_.phase));
}

void ScheduleRunner::run(bool set_up) {
    try {
        for (std::uint32_t index = 0; index < schedule_.segments.size(); ++index) {
            const Segment& segment = schedule_.segments[index];
            if ((segment.phase == Phase::setup) != set_up) continue;
            for (std::uint32_t i = 0; i < segment.repeat; ++i) run_segment(index, i);
        }
    } catch (...) {
        clear();
        throw;
    }
}

void ScheduleRunner::run_segment(std::uint32_t index, std::uint32_t repetition) {
    const Segment& segment = schedule_.segments[index];
    now_ = {index, repetition, segment.phase};
    memory_.segments[index].value = std::max(memory_.segments[index].value, device_bytes_);
    device_.enter_segment(index, repetition);
    for_each_event(schedule_, segment, [&](const Event& event) {
        try {
            execute(event);
        } catch (const Error& error) {
            if (!error.where().empty()) throw;
            const std::string name = event.name;
            throw Error(error.what(), name.empty() ? place() : fmt::format("'{}' in {}", name, place()), error.hint(),
                        error.exit_code());
        }
    });
}

void ScheduleRunner::execute(const Event& event) {
    switch (event.kind) {
        case EventKind::allocate:
            return allocate(event);
        case EventKind::release: {
            const LiveTensor tensor = tensors_.take(event.id);
            count(tensor, -1);
            if (tensor.bytes > 0) device_.release(tensor);
            return;
        }
        case EventKind::phase:
            now_.phase = static_cast<Phase>(event.id);
            return;
        case EventKind::gemm:
        case EventKind::attention:
        case EventKind::memory_bound:
        case EventKind::collective:
        case EventKind::copy:
            return device_.launch({event, now_.phase, tensors_, described(schedule_, index_of(event))});
        case EventKind::record:
            recorded_[event.id] = 1;
            return device_.record(event.stream, event.id);
        case EventKind::wait:
            if (recorded_[event.id] == 0) {
                throw Error(fmt::format("the schedule waits for sync {}, which was never recorded", event.id), "",
                            report_it, ExitCode::failure);
            }
            return device_.wait(event.stream, event.id);
        case EventKind::host_wait:
            return device_.host_wait(event.stream);
        case EventKind::host_work:
            return device_.host_work(event.host_work);
        case EventKind::loop:
        case EventKind::call:
            return;  // for_each_event writes them out
    }
}

void ScheduleRunner::allocate(const Event& event) {
    if (event.bytes < 0) {
        throw Error(fmt::format("the schedule allocates {} bytes", event.bytes), "", report_it, ExitCode::failure);
    }
    LiveTensor tensor{event.id, event.name, event.group, event.place, event.stream, event.bytes, nullptr};
    if (tensor.bytes > 0) {
        try {
            tensor.address = device_.allocate(tensor);
        } catch (const MemoryFull& full) {
            const bool on_device = tensor.place == Place::device;
            const std::int64_t held = on_device ? device_bytes_ : pinned_bytes_ + pageable_bytes_;
            const std::string rest = full.free() < 0 ? "" : fmt::format(", {:.2f} GiB are free", in_gib({full.free()}));
            throw Error(fmt::format("out of {} memory: '{}' takes {} bytes ({:.2f} GiB) where {:.2f} GiB are held{}",
                                    on_device ? "device" : "host", event.name, event.bytes, in_gib({event.bytes}),
                                    in_gib({held}), rest),
                        place(), on_device ? "shorten --context, or use more GPUs" : "free host memory",
                        ExitCode::does_not_fit);
        }
    }
    tensors_.add(tensor);
    count(tensor, 1);
}

void ScheduleRunner::count(const LiveTensor& tensor, std::int64_t times) {
    switch (tensor.place) {
        case Place::host_pinned:
            pinned_bytes_ += times * tensor.bytes;
            memory_.pinned_peak.value = std::max(memory_.pinned_peak.value, pinned_bytes_);
            return;
        case Place::host_pageable:
            pageable_bytes_ += times * tensor.bytes;
            memory_.pageable_peak.value = std::max(memory_.pageable_peak.value, pageable_bytes_);
            return;
        case Place::device:
            break;
    }
    device_bytes_ += times * round_up(tensor.bytes, allocation_unit);
    std::int64_t& in_segment = memory_.segments[now_.segment].value;
    in_segment = std::max(in_segment, device_bytes_);
    if (device_bytes_ <= memory_.device_peak.value) return;
    memory_.device_peak.value = device_bytes_;
    memory_.at = now_;
}

}  // namespace headroom
