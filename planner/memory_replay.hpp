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
    std::uint32_t call = no_call;  ///< index of the call whose routine holds `event`

    static constexpr std::uint32_t no_call = ~std::uint32_t{0};
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
    /// Uses that a segment's repetitions move the same bytes, that a loop ends as it began, and that every call of a
    /// routine does what the first one did, from where it starts.
    const MemoryProfile& run(const Schedule& schedule);
    /// The reference: every repetition and every call is read.
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
    struct DeviceBytes {
        std::int64_t all = 0;
        std::int64_t activations = 0;
    };
    struct HostBytes {
        std::int64_t pageable = 0;
        std::int64_t pinned_exact = 0;
        std::array<std::int32_t, size_classes> pinned_blocks{};  ///< live blocks of 2^i bytes

        void add(const HostBytes& change, std::int64_t times = 1);
        void raise_to(const HostBytes& other);
        HostBytes since(const HostBytes& before) const;
    };
    /// Highest points of a run of events, by phase and over all.
    struct Peaks {
        std::array<DeviceBytes, phase_count> phases;
        Moment at;  ///< where `device` was reached first
        std::int64_t device = lowest;

        Peaks() { phases.fill({lowest, lowest}); }
        /// What `inner` reached above `base`, reached within a call.
        void raise_to(const Peaks& inner, const DeviceBytes& base, std::uint32_t call);
    };
    /// What every call of a routine does, relative to the bytes before it.
    struct Effect {
        bool known = false;
        bool touches_host = false;
        Phase ends_in{};
        DeviceBytes device;
        HostBytes host, host_peak;
        Peaks peaks;
    };
    static constexpr std::int64_t lowest = -(std::int64_t{1} << 62);

    const MemoryProfile& replay(const Schedule& schedule, bool expand);
    void read(const Schedule& schedule, std::uint32_t index, std::uint32_t repetition);
    void read_events(const Schedule& schedule, std::uint32_t first, std::uint32_t last, Phase& phase, Peaks& peaks);
    void call(const Schedule& schedule, std::uint32_t at, Phase& phase, Peaks& peaks);
    void learn(const Schedule& schedule, const Routine& routine, Phase phase, Effect& effect);
    void count(const Slot& slot, std::int64_t times);

    std::vector<Slot> slots_;
    std::vector<Effect> effects_;  ///< by RoutineId
    DeviceBytes device_;
    HostBytes host_;
    HostBytes host_peak_;  ///< largest of each counter on its own
    bool host_touched_ = false;
    bool expand_ = false;
    MemoryProfile profile_;
};

}  // namespace headroom
