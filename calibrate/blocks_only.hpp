// SPDX-License-Identifier: Apache-2.0
// A training step without what stands around its blocks.
#pragma once

#include "models/schedule.hpp"

namespace headroom {

/// The step's set-up and blocks: forward, recompute and backward. Of the embedding, the loss and the optimizer only the
/// allocations stay that a block shares with them: its input, the gradient of its output. In a described step both are
/// given numbers, those of `parameters` (fp32, of the set-up) in the compute format, over and over.
Schedule blocks_only(const Schedule& step, TensorId parameters = ~TensorId{0});

}  // namespace headroom
