// SPDX-License-Identifier: Apache-2.0
#include "calibrate/interpreter.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "models/error.hpp"

namespace headroom {
namespace {

constexpr std::size_t host = stream_count;

std::size_t number(Stream stream) { return static_cast<std::size_t>(stream); }

std::string stream_name(std::size_t stream) {
    return stream == host ? "host" : std::string(to_string(static_cast<Stream>(stream)));
}

[[noreturn]] void wrong(const char* launch, const std::string& what) {
    throw Error(what, fmt::format("launch '{}'", launch), "the schedule is wrong; please report it");
}

template <class Clock>
void join(Clock& clock, const Clock& other) {
    for (std::size_t i = 0; i < clock.size(); ++i) clock[i] = std::max(clock[i], other[i]);
}

}  // namespace

Interpreter::Interpreter(const Schedule& schedule, std::int64_t element, int ranks, ComputeDevice& device)
    : schedule_(schedule), element_(element), ranks_(ranks), device_(device) {}

Interpreter::~Interpreter() {
    for (auto& [id, stack] : tensors_) {
        for (const Tensor& tensor : stack) {
            give_back(tensor);
        }
    }
}

void Interpreter::give_back(const Tensor& tensor) {
    if (tensor.address != nullptr) device_.release(tensor.address, tensor.place, tensor.stream);
}

Interpreter::Freed& Interpreter::pool(const Tensor& tensor) {
    return freed_[tensor.place == Place::device ? number(tensor.stream) : host];
}

void Interpreter::run(const Segment& segment) {
    for (std::uint32_t turn = 0; turn < segment.repeat; ++turn) {
        for_each_event(schedule_, segment, [&](const Event& event) {
            switch (event.kind) {
                case EventKind::allocate:
                    return allocate(event);
                case EventKind::release:
                    return release(event.id);
                case EventKind::record:
                    recorded_[event.id] = clocks_[number(event.stream)];
                    return device_.record(event.stream, event.id);
                case EventKind::wait:
                    if (const auto found = recorded_.find(event.id); found != recorded_.end()) {
                        join(clocks_[number(event.stream)], found->second);
                        device_.wait(event.stream, event.id);
                    }
                    return;
                case EventKind::host_wait:
                    join(clocks_[host], clocks_[number(event.stream)]);
                    return device_.host_wait(event.stream);
                case EventKind::gemm:
                case EventKind::attention:
                case EventKind::memory_bound:
                case EventKind::collective:
                case EventKind::copy:
                    return launch(static_cast<std::uint32_t>(&event - schedule_.events.data()));
                case EventKind::phase:
                case EventKind::loop:
                case EventKind::call:
                case EventKind::host_work:
                    return;
            }
        });
    }
}

void Interpreter::allocate(const Event& event) {
    if (event.bytes < 0) wrong(event.name, "a tensor of negative size is allocated");
    // Scratch that this shape does not need has no bytes.
    std::byte* address =
        event.bytes == 0 ? nullptr : device_.allocate(event.name, event.bytes, event.place, event.stream);
    Tensor made{address, event.bytes, event.place, event.stream, event.name, {}, {}};
    made.before = pool(made);
    tensors_[event.id].push_back(std::move(made));
    if (event.place != Place::device) return;
    live_bytes_ += event.bytes;
    peak_bytes_ = std::max(peak_bytes_, live_bytes_);
}

void Interpreter::release(TensorId id) {
    const auto found = tensors_.find(id);
    if (found == tensors_.end()) wrong("release", "a tensor is freed that is not alive");
    const Tensor& tensor = found->second.back();
    Freed& freed = pool(tensor);
    for (const Use& use : tensor.uses) {
        if (use.time > freed[use.stream].time) freed[use.stream] = use;
    }
    give_back(tensor);
    if (tensor.place == Place::device) live_bytes_ -= tensor.bytes;
    found->second.pop_back();
    if (found->second.empty()) tensors_.erase(found);
}

void Interpreter::launch(std::uint32_t index) {
    const Event& event = schedule_.events[index];
    const ComputationRange computations = described(schedule_, index);
    if (computations.empty()) wrong(event.name, "the launch does not say what it computes");
    for (const Description& one : computations) compute(event, one.computation);
}

void Interpreter::compute(const Event& event, const Computation& computation) {
    const Attention shape = event.kind == EventKind::attention ? event.attention : Attention{};
    join(clocks_[number(event.stream)], clocks_[host]);
    for (const Access& access : accesses(computation, shape, element_, ranks_)) touch(event, access);
    ++clocks_[number(event.stream)][number(event.stream)];
    perform(device_, event, computation, [this](const View& view) { return resolve(view); });
}

void Interpreter::touch(const Event& event, const Access& access) {
    Tensor& touched = tensor(access.view.tensor, event.name);
    const std::int64_t begin = access.view.offset;
    const std::int64_t end = begin + access.bytes;
    if (begin < 0 || end > touched.bytes) {
        wrong(event.name,
              fmt::format("bytes {} to {} of '{}' are used, which has {}", begin, end, touched.name, touched.bytes));
    }
    touch_again(event, touched);
    const std::size_t stream = number(event.stream);
    const Clock& clock = clocks_[stream];
    std::erase_if(touched.uses, [&](const Use& use) {
        if (use.end <= begin || end <= use.begin || !(use.writes || access.writes)) return false;
        if (use.stream != stream && clock[use.stream] < use.time) {
            wrong(event.name,
                  fmt::format("'{}' is used on the {} stream, which does not wait for '{}' on the {} stream",
                              touched.name, stream_name(stream), use.launch, stream_name(use.stream)));
        }
        return access.writes && begin <= use.begin && use.end <= end;  // hidden behind this one from now on
    });
    touched.uses.push_back({begin, end, stream, clock[stream] + 1, access.writes, event.name});
}

/// Its memory may be that of any tensor freed before in the same pool.
void Interpreter::touch_again(const Event& event, const Tensor& touched) const {
    const std::size_t stream = number(event.stream);
    for (const Use& use : touched.before) {
        if (use.stream == stream || clocks_[stream][use.stream] >= use.time) continue;
        wrong(event.name, fmt::format("'{}' may lie where a freed tensor lay that '{}' on the {} stream still uses",
                                      touched.name, use.launch, stream_name(use.stream)));
    }
}

Interpreter::Tensor& Interpreter::tensor(TensorId id, const char* launch) {
    const auto found = tensors_.find(id);
    if (found == tensors_.end()) wrong(launch, "a tensor is used that is not alive");
    return found->second.back();
}

std::byte* Interpreter::resolve(const View& view) const {
    return tensors_.at(view.tensor).back().address + view.offset;
}

std::byte* Interpreter::address(TensorId id) const {
    const auto found = tensors_.find(id);
    if (found == tensors_.end()) throw Error("a tensor is asked for that is not alive", "calibrate check");
    return found->second.back().address;
}

std::int64_t Interpreter::bytes(TensorId id) const { return tensors_.at(id).back().bytes; }

}  // namespace headroom
