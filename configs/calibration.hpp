// SPDX-License-Identifier: Apache-2.0
// Calibration files: the constants of one kind of machine, each with range, source and reference.
#pragma once

#include <string>
#include <vector>

#include "models/cluster.hpp"
#include "simulator/calibration.hpp"

namespace headroom {

/// A built-in name (`h100-sxm-80gb`) or a YAML file. A file with `base:` starts from that calibration, carried over
/// by the ratios of the two datasheets, and says what is known better. Throws Error with file:line:column and key.
Calibration load_calibration(const std::string& name_or_path);
std::vector<std::string> builtin_calibrations();

/// The calibration of this very machine, or the nearest built-in one carried over by datasheet ratios: within the
/// architecture where there is one. `kind` is "derived" then, and every constant says so.
Calibration calibration_for(const Cluster& cluster);

}  // namespace headroom
