// SPDX-License-Identifier: Apache-2.0
// The ranks of a check on the GPUs of this machine.
#pragma once

#include "calibrate/check_command.hpp"

namespace headroom {

/// Ranks on GPUs of their own through NCCL where there are as many, otherwise all of them on the first one.
std::unique_ptr<CheckRanks> open_cuda_check_ranks(int ulysses, int ring);
int visible_gpus();

}  // namespace headroom
