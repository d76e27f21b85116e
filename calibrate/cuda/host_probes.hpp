// SPDX-License-Identifier: Apache-2.0
// Probes of host memory and of what the host costs the GPU: copies, zero fill, launches, gaps.
#pragma once

#include <memory>

#include "calibrate/device.hpp"

namespace headroom {

std::unique_ptr<PreparedProbe> prepare_host_copy(const HostCopyProbe& probe);
std::unique_ptr<PreparedProbe> prepare_zero_fill(const ZeroFillProbe& probe);
std::unique_ptr<PreparedProbe> prepare_host_gap(const HostGapProbe& probe);

}  // namespace headroom
