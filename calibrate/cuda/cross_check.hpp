// SPDX-License-Identifier: Apache-2.0
// Kernel time by events against kernel time by CUPTI.
#pragma once

#include <memory>

#include "calibrate/device.hpp"

namespace headroom {

/// `of` is the measurement of the probe's kernels.
std::unique_ptr<PreparedProbe> prepare_cross_check(std::unique_ptr<PreparedProbe> of);

}  // namespace headroom
