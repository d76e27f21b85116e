// SPDX-License-Identifier: Apache-2.0
// The whole training step of one rank: states, gathers, blocks, loss, backward, optimizer.
#pragma once

#include "models/schedule.hpp"
#include "models/workload.hpp"

namespace headroom {

/// Writes the step of `work` into `schedule`, whose storage is reused. The middle blocks are one repeated segment.
void build_training_step(const Workload& work, Schedule& schedule);

}  // namespace headroom
