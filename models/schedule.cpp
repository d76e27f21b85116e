// SPDX-License-Identifier: Apache-2.0
#include "models/schedule.hpp"

#include <array>

namespace headroom {

std::string_view to_string(Group group) {
    static constexpr std::array<std::string_view, group_count> names{
        "states", "parameters", "gradients", "attention",     "mlp",    "norm",
        "loss",   "saved",      "residual",  "communication", "tables", "workspace"};
    return names[static_cast<std::size_t>(group)];
}

std::string_view to_string(Stream stream) {
    static constexpr std::array<std::string_view, stream_count> names{
        "compute", "ulysses", "ring", "all-gather", "reduce-scatter", "host-to-device", "device-to-host"};
    return names[static_cast<std::size_t>(stream)];
}

std::string_view to_string(Phase phase) {
    static constexpr std::array<std::string_view, 6> names{"setup",     "forward",  "loss",
                                                           "recompute", "backward", "optimizer"};
    return names[static_cast<std::size_t>(phase)];
}

void Schedule::clear() {
    events.clear();
    segments.clear();
    routines.clear();
    descriptions.clear();
    tensors = 0;
    syncs = 0;
}

void Builder::segment(const char* name, Phase phase, std::int64_t repeat) {
    finish();
    const auto here = static_cast<std::uint32_t>(schedule_.events.size());
    schedule_.segments.push_back({name, phase, here, here, static_cast<std::uint32_t>(repeat)});
    open_ = true;
}

void Builder::finish() {
    if (!open_) return;
    open_ = false;
    Segment& open = schedule_.segments.back();
    open.last = static_cast<std::uint32_t>(schedule_.events.size());
    if (open.first == open.last || open.repeat == 0) {
        schedule_.events.resize(open.first);
        schedule_.segments.pop_back();
    }
}

void Builder::gemm(const char* name, std::int64_t m, std::int64_t n, std::int64_t k, std::int64_t count, bool adds) {
    launch(EventKind::gemm, name).gemm = {m, n, k, static_cast<std::int32_t>(count), adds};
}

void Builder::attention(const char* name, const Attention& shape) {
    launch(EventKind::attention, name).attention = shape;
}

void Builder::memory_bound(const char* name, MemoryKernel kernel, Bytes read, Bytes written, std::int64_t count) {
    launch(EventKind::memory_bound, name).memory_bound = {kernel, read.value, written.value,
                                                          static_cast<std::int32_t>(count)};
}

void Builder::collective(const char* name, Stream on, CollectiveKind kind, CommGroup group, Bytes bytes,
                         bool blocking) {
    if (blocking) wait(on, record(Stream::compute));
    Event& event = launch(EventKind::collective, name);
    event.stream = on;
    event.collective = {kind, group, bytes.value};
    if (blocking) wait(Stream::compute, record(on));
}

void Builder::copy(const char* name, Stream on, const Copy& copy) {
    Event& event = launch(EventKind::copy, name);
    event.stream = on;
    event.copy = copy;
}

void Builder::record_again(Stream stream, SyncId sync) {
    Event& event = append(EventKind::record, "");
    event.stream = stream;
    event.id = sync;
}

void Builder::wait(Stream stream, SyncId sync) {
    Event& event = append(EventKind::wait, "");
    event.stream = stream;
    event.id = sync;
}

void Builder::host_wait(const char* name, Stream stream) { append(EventKind::host_wait, name).stream = stream; }

void Builder::host_work(const char* name, HostWork::Kind kind, std::int64_t amount) {
    append(EventKind::host_work, name).host_work = {kind, amount};
}

}  // namespace headroom
