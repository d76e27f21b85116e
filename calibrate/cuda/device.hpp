// SPDX-License-Identifier: Apache-2.0
// The GPUs of this machine.
#pragma once

#include <memory>

#include "calibrate/device.hpp"

namespace headroom {

/// Throws Error when there is no driver, no GPU, or a driver older than the program.
std::unique_ptr<Device> open_cuda_device(const GpuChoice& choice = {});

}  // namespace headroom
