// SPDX-License-Identifier: Apache-2.0
// `headroom calibrate run`, apart from the GPUs.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "calibrate/run/fleet.hpp"

namespace headroom {

/// Executes the cases one after the other, a line for each as soon as it is done. `open` makes a fleet of that many
/// GPUs; it is not called for a dry run. A case that fails is recorded and the next goes on: failure at the end, or
/// does_not_fit when memory alone was missing.
ExitCode run_runs(const CalibrateOptions& options, const std::vector<std::string>& words,
                  const std::function<std::unique_ptr<RunFleet>(int)>& open);

}  // namespace headroom
