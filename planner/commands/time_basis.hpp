// SPDX-License-Identifier: Apache-2.0
// Which constants step times rest on, and what MFU counts: --calibration, --mfu.
#pragma once

#include "models/cluster.hpp"
#include "planner/commands/arguments.hpp"
#include "planner/step.hpp"

namespace headroom {

FlagGroup time_flags();

/// The calibration that was named as it is, or the cluster's own, or the nearest carried over to it.
TimeBasis read_time_basis(const Arguments& arguments, const Cluster& cluster);

}  // namespace headroom
