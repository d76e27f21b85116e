// SPDX-License-Identifier: Apache-2.0
// Ranks that act together and fail together.
#pragma once

#include <functional>

#include "calibrate/run/trouble.hpp"
#include "calibrate/team.hpp"

namespace headroom {

/// Runs action(rank) in all threads of the team. The first failure is kept in `trouble`, with its rank; ranks that look
/// at it stop by themselves, and those that hang in a call of NCCL are set free by `abort`, which is called half a
/// second later unless all have ended. The same when `trouble` is interrupted. Rethrows when all have ended.
void act_together(Team& team, Trouble& trouble, const std::function<void(int)>& action,
                  const std::function<void()>& abort);

}  // namespace headroom
