// SPDX-License-Identifier: Apache-2.0
// Executes one rank's schedule in host program order: its allocations, launches, records and waits as they stand there,
// on a device behind an interface. Two devices exist: CUDA (cuda/run_device.cpp) and the fake one of the tests.
// A schedule that is really to be computed says of every launch what it computes.
#pragma once

#include <cstdint>
#include <stdexcept>
#include <string>
#include <vector>

#include "calibrate/arithmetic.hpp"
#include "calibrate/live_tensors.hpp"
#include "models/schedule.hpp"
#include "models/units.hpp"

namespace headroom {

/// What a device throws when memory is not to be had; the runner says for which tensor.
class MemoryFull : public std::runtime_error {
 public:
    explicit MemoryFull(std::int64_t free) : std::runtime_error("out of memory"), free_(free) {}
    std::int64_t free() const { return free_; }  ///< bytes still there; negative when unknown

 private:
    std::int64_t free_;
};

/// Work for a stream: gemm, attention, memory_bound, collective or copy.
struct StreamLaunch {
    const Event& event;
    Phase phase;
    const TensorTable& tensors;
    ComputationRange computations;  ///< none in a schedule that is not described

    /// Does all of them on the tensors that are alive. Throws Error where there are none, or a tensor is not alive.
    void compute(Arithmetic& on) const;
};

class RunDevice {
 public:
    virtual ~RunDevice() = default;
    /// The address of a tensor that is to be; never asked for no bytes. Throws MemoryFull.
    virtual void* allocate(const LiveTensor& wanted) = 0;
    virtual void release(const LiveTensor& tensor) noexcept = 0;

    virtual void launch(const StreamLaunch& launch) = 0;
    virtual void record(Stream stream, SyncId sync) = 0;
    virtual void wait(Stream stream, SyncId sync) = 0;
    virtual void host_wait(Stream stream) = 0;
    virtual void host_work(const HostWork& work) = 0;

    /// What follows belongs to this repetition of this segment of Schedule::segments.
    virtual void enter_segment(std::uint32_t segment, std::uint32_t repetition) = 0;
    /// Tensors that are alive will be freed next, perhaps after an error: no work may use them any more.
    virtual void settle() noexcept {}
};

struct RunMoment {
    std::uint32_t segment = 0, repetition = 0;
    Phase phase{};
};

/// Bytes of the tensors that were alive together, over everything run so far.
struct RunMemory {
    Bytes device_peak;  ///< each tensor rounded to 512 bytes, as PyTorch counts
    RunMoment at;
    Bytes pinned_peak, pageable_peak;  ///< exact
    std::vector<Bytes> segments;       ///< device peak while in each segment
};

class ScheduleRunner {
 public:
    /// Both must outlive the runner.
    ScheduleRunner(const Schedule& schedule, RunDevice& device);
    /// Frees what is alive.
    ~ScheduleRunner() { clear(); }
    ScheduleRunner(const ScheduleRunner&) = delete;
    ScheduleRunner& operator=(const ScheduleRunner&) = delete;

    /// Executes the set-up segments: what exists before the first step and stays.
    void set_up();
    /// Executes the rest: one training step. Throws Error when a tensor is left over; when the device is out of memory,
    /// naming tensor, bytes and segment (does_not_fit); or whatever a launch failed with, naming it. All tensors are
    /// freed then.
    void step();
    void clear() noexcept;

    const RunMemory& memory() const { return memory_; }
    const TensorTable& tensors() const { return tensors_; }

 private:
    void run(bool set_up);
    void run_segment(std::uint32_t index, std::uint32_t repetition);
    void execute(const Event& event);
    void allocate(const Event& event);
    void count(const LiveTensor& tensor, std::int64_t times);
    std::uint32_t index_of(const Event& event) const;
    std::string place() const;

    const Schedule& schedule_;
    RunDevice& device_;
    TensorTable tensors_;
    std::vector<char> recorded_;  ///< by SyncId
    std::size_t kept_ = 0;        ///< tensors of the set-up
    RunMoment now_;
    std::int64_t device_bytes_ = 0, pinned_bytes_ = 0, pageable_bytes_ = 0;
    RunMemory memory_;
};

}  // namespace headroom
