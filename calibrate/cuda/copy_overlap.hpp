// SPDX-License-Identifier: Apache-2.0
// Attention beside a pinned host copy.
#pragma once

#include <memory>

#include "calibrate/device.hpp"

namespace headroom {

std::unique_ptr<PreparedProbe> prepare_copy_overlap(const CopyOverlapProbe& probe);

}  // namespace headroom
