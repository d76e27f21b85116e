// SPDX-License-Identifier: Apache-2.0
// The mix of a training step, run by all GPUs of the process at once for seconds: attention forward twice (a checkpoint
// runs it again), backward, and products. What each then takes is what it takes in training, where the power cap has
// long lowered the clock.
#pragma once

#include <memory>

#include "calibrate/device.hpp"

namespace headroom {

/// Throws Waived when the process does not see all GPUs of the probe.
std::unique_ptr<PreparedProbe> prepare_sustained(const SustainedProbe& probe);

}  // namespace headroom
