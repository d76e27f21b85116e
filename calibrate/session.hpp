// SPDX-License-Identifier: Apache-2.0
// Runs planned probes on a device, one after the other, and writes a record for each.
#pragma once

#include <atomic>
#include <functional>
#include <string>
#include <vector>

#include "calibrate/device.hpp"
#include "calibrate/plan.hpp"
#include "calibrate/probe_file.hpp"

namespace headroom {

struct SessionOptions {
    std::function<double()> now;                       ///< seconds, monotonic
    std::function<std::string()> date;                 ///< UTC, ISO 8601
    std::function<void(const std::string&)> progress;  ///< a line for the user; may be empty
    const std::atomic<bool>* interrupted = nullptr;    ///< set by Ctrl-C: the running probe is given up
};

struct SessionResult {
    int ok = 0, failed = 0, waived = 0;
    bool interrupted = false;
    bool device_lost = false;  ///< the rest was not tried
};

/// The record of one probe, finished, failed or waived.
Json run_probe(Device& device, const Probe& probe, const SessionOptions& options);

SessionResult run_session(Device& device, const std::vector<Probe>& probes, ProbeWriter& writer,
                          const SessionOptions& options);

}  // namespace headroom
