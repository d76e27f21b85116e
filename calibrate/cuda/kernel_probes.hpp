// SPDX-License-Identifier: Apache-2.0
// Memory-bound kernels: each timed on tensors far larger than the caches, each checked row by row.
#pragma once

#include <memory>

#include "calibrate/device.hpp"

namespace headroom {

std::unique_ptr<PreparedProbe> prepare_device_kernel(const DeviceKernelProbe& probe);

}  // namespace headroom
