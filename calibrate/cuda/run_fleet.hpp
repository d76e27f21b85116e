// SPDX-License-Identifier: Apache-2.0
// The GPUs of this machine that execute schedules together: one process, a thread for each GPU, NCCL between them.
#pragma once

#include <memory>

#include "calibrate/run/fleet.hpp"

namespace headroom {

/// Throws Error when there are fewer GPUs.
std::unique_ptr<RunFleet> open_cuda_fleet(int gpus);

}  // namespace headroom
