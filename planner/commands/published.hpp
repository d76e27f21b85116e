// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "planner/validate.hpp"

namespace headroom {

/// The predictions against all published results that are built in.
Validation validate_published();

}  // namespace headroom
