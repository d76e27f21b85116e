// SPDX-License-Identifier: Apache-2.0
// What a described step finds when it begins.
#pragma once

#include <cuda_runtime_api.h>

#include "calibrate/live_tensors.hpp"
#include "calibrate/run/prediction.hpp"

namespace headroom {

/// Fills the tensors that the set-up left: parameters (ones in norms, elsewhere normal random numbers times 0.02, the
/// same whole for every number of ranks), zero moments, the rotary table with base 10000, tokens and labels. Waits for
/// all of it. Throws Error where a tensor has not the size that the model gives it.
void fill_step(cudaStream_t stream, const RankPlan& rank, const TensorTable& tensors);

}  // namespace headroom
