// SPDX-License-Identifier: Apache-2.0
// Attention whose gradients cuDNN gets wrong without an error. Measured with 9.14 and 9.19 on H200; see
// calibrate/attention_limits.hpp, which refuses to run it.
#pragma once

#include <string>

#include "models/schedule.hpp"

namespace headroom {

/// The warning for a schedule that cuDNN is to run; empty when none of its backward launches is too large.
std::string cudnn_warning(const Schedule& schedule);

}  // namespace headroom
