// SPDX-License-Identifier: Apache-2.0
// What `headroom calibrate` does, apart from the GPU itself: the same code stands behind headroom-calibrate, which has
// one, and behind headroom, which has none.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "calibrate/device.hpp"
#include "calibrate/options.hpp"

namespace headroom {

/// A machine's provenance with the command that made what follows, and the time.
Json with_command(Json provenance, const std::vector<std::string>& words);

using OpenDevice = std::function<std::unique_ptr<Device>(const GpuChoice&)>;

/// Runs the options; `open` is asked for a device only when one is needed. Started as one of several processes of a
/// job, the first leads and the others serve it.
ExitCode run_calibrate(const CalibrateOptions& options, const std::vector<std::string>& words, const OpenDevice& open);

}  // namespace headroom
