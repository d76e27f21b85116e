// SPDX-License-Identifier: Apache-2.0
// What a probe session needs of a GPU machine. Two exist: CUDA (cuda/device.cpp) and the fake one of the tests.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "calibrate/plan.hpp"
#include "calibrate/probe.hpp"
#include "models/error.hpp"

namespace headroom {

/// Which GPUs of the node a process drives: all of them, or one where each process has its own.
struct GpuChoice {
    int first = 0;
    bool one = false;
};

/// Clocks and limits at one moment; what cannot be read is 0 or empty.
struct GpuState {
    int sm_clock_mhz = 0, memory_clock_mhz = 0;
    int temperature_celsius = 0;
    double power_watts = 0;
    std::vector<std::string> throttle;  ///< reasons, "software power cap"
};

/// Result against a reference: relative error and the limit it has to keep.
struct Check {
    double error = 0, limit = 0;
    bool done = false;                                       ///< false: nothing to verify
    bool passed() const { return !done || error <= limit; }  // a NaN does not pass
};

/// A probe whose memory is there and whose plans are made.
class PreparedProbe {
 public:
    virtual ~PreparedProbe() = default;
    /// One timed batch, seconds per run of the probe's work.
    virtual double run() = 0;
    /// Numerics of what run() executes, on the operands it uses.
    virtual Check verify() { return {}; }
    /// Further figures for the record.
    virtual Json notes() { return Json::object(); }
};

/// The probe has no meaning on this machine; no failure.
class Waived : public std::runtime_error {
    using std::runtime_error::runtime_error;
};

class Device {
 public:
    virtual ~Device() = default;
    /// Identity and software; the same on every call of one process.
    virtual Json provenance() = 0;
    virtual PlanMachine machine() = 0;
    virtual GpuState state() = 0;
    /// Throws Error (no memory, library says no) or Waived.
    virtual std::unique_ptr<PreparedProbe> prepare(const Probe& probe) = 0;
    /// For probes that several processes run together: what all of them must know (NCCL's ids), made by the first ...
    virtual std::string invitation(const Probe&) { return {}; }
    /// ... and the share of such a probe that falls to this process; `first_rank` is the number of GPUs of the
    /// processes before it. All of them call it at about the same time.
    virtual std::unique_ptr<PreparedProbe> join(const Probe& probe, const std::string& invitation, int first_rank) {
        return first_rank == 0 && invitation.empty() ? prepare(probe) : nullptr;
    }
    /// Communicators that a failed probe may have left in any state are given up.
    virtual void forget_shared() {}
    /// False after an error that no further call survives.
    virtual bool usable() { return true; }
};

}  // namespace headroom
