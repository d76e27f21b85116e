// SPDX-License-Identifier: Apache-2.0
// A device that executes nothing: it says what it was asked for, and can run out of memory or fail.
#pragma once

#include <fmt/format.h>

#include <cstring>
#include <map>
#include <string>
#include <vector>

#include "calibrate/runner.hpp"
#include "models/error.hpp"

namespace headroom {

class FakeRunDevice : public RunDevice {
 public:
    bool logs = false;
    std::vector<std::string> log;
    std::int64_t capacity = -1;  ///< device bytes, exact; negative: endless
    std::string fails_at;        ///< name of a launch that throws

    std::int64_t held = 0;                    ///< device bytes
    std::map<void*, std::int64_t> addresses;  ///< alive, on host or device
    int settled = 0;

    void* allocate(const LiveTensor& wanted) override {
        if (wanted.place == Place::device && capacity >= 0 && held + wanted.bytes > capacity) {
            throw MemoryFull(capacity - held);
        }
        if (wanted.place == Place::device) held += wanted.bytes;
        // Never memory: only a number nobody else has.
        next_ += 4096;
        void* address = reinterpret_cast<void*>(next_);
        addresses[address] = wanted.bytes;
        say(fmt::format("allocate {} {}", wanted.name, wanted.bytes));
        return address;
    }
    void release(const LiveTensor& tensor) noexcept override {
        if (tensor.place == Place::device) held -= tensor.bytes;
        released_unknown += addresses.erase(tensor.address) == 1 ? 0 : 1;
        say(fmt::format("release {} {}", tensor.name, tensor.bytes));
    }
    void launch(const StreamLaunch& launch) override {
        if (fails_at == launch.event.name) throw Error("the kernel broke", "", "", ExitCode::failure);
        say(fmt::format("{} on {} in {}", launch.event.name, to_string(launch.event.stream), to_string(launch.phase)));
        if (launch.event.kind == EventKind::collective) {
            const Collective& op = launch.event.collective;
            collectives.push_back(
                fmt::format("{} {} {}", static_cast<int>(op.kind), static_cast<int>(op.group), op.bytes));
        }
    }
    void record(Stream stream, SyncId sync) override { say(fmt::format("record {} {}", to_string(stream), sync)); }
    void wait(Stream stream, SyncId sync) override { say(fmt::format("{} waits {}", to_string(stream), sync)); }
    void host_wait(Stream stream) override { say(fmt::format("host waits {}", to_string(stream))); }
    void host_work(const HostWork& work) override { say(fmt::format("host works {}", work.amount)); }
    void enter_segment(std::uint32_t segment, std::uint32_t repetition) override {
        say(fmt::format("segment {}.{}", segment, repetition));
    }
    void settle() noexcept override { ++settled; }

    std::vector<std::string> collectives;
    int released_unknown = 0;

 private:
    void say(std::string line) {
        if (logs) log.push_back(std::move(line));
    }
    std::uintptr_t next_ = 0;
};

}  // namespace headroom
