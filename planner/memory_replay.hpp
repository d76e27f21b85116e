// SPDX-License-Identifier: Apache-2.0
// Reads a schedule for bytes: allocations and frees in host program order.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "models/schedule.hpp"

namespace headroom {

/// Where in a schedule something happened.
struct Moment {
    std::uint32_t segment = 0;
    std::uint32_t repetition = 0;
    std::uint32_t event = 0;  ///< index into Schedule::events
    Phase phase{};
};

/// Most bytes of one phase of a segment over its repetitions.
struct PhasePeak {
    Bytes device;
    Bytes activations;  ///< of the activation groups alone, whenever that is largest
};
using SegmentPeak = std::array<PhasePeak, phase_count>;

struct MemoryProfile {
    Bytes device_peak;  ///< allocated: requests rounded to 512 bytes as PyTorch counts them
    Moment at;
    Bytes pinned_peak;    ///< per rank; power-of-two blocks that are never returned
    Bytes pageable_peak;  ///< per rank
    std::vector<SegmentPeak> segments;
};

/// Bytes alive under one name at a moment.
struct LiveTensors {
    const char* name;
    Group group;
    Place place;
    Bytes bytes;
};

/// Replays schedules; keeps its storage from one to the next.
class MemoryReplay {
 public:
    /// Uses that a segment's repetitions move the same bytes, and that a loop ends as it began.
    const MemoryProfile& run(const Schedule& schedule);
    /// The reference: every repetition is read.
    const MemoryProfile& run_expanded(const Schedule& schedule);
    /// What is alive right after the event at `moment`, by name, largest first.
    std::vector<LiveTensors> alive_at(const Schedule& schedule, const Moment& moment) const;
    /// Host tensors by name, each at its own peak and as its allocator rounds it, largest first.
    std::vector<LiveTensors> host_peaks(const Schedule& schedule) const;

 private:
    static constexpr std::size_t size_classes = 64;
    struct Slot {
        std::int64_t bytes = 0;
        Group group{};
        Place place{};
    };
    struct Counters {
        std::int64_t device = 0;
        std::int64_t activations = 0;
        std::int64_t pageable = 0;
        std::int64_t pinned_exact = 0;
        std::array<std::int32_t, size_classes> pinned_blocks{};  ///< live blocks of 2^i bytes
    };

    void start(const Schedule& schedule);
    void read(const Schedule& schedule, const Segment& segment, std::uint32_t index, std::uint32_t repetition);
    void read_events(const Schedule& schedule, std::uint32_t first, std::uint32_t last, Moment& at);
    void apply(const Event& event);
    void skip(const Counters& before, std::int64_t repetitions);
    void note_host_peaks(const Counters& counters);
    void finish();

    std::vector<Slot> slots_;
    Counters now_;
    Counters peak_;  ///< largest of each counter on its own
    bool expand_loops_ = false;
    MemoryProfile profile_;
};

}  // namespace headroom
