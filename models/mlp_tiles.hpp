// SPDX-License-Identifier: Apache-2.0
// The tiled gated MLP tile by tile, as it is run. A plan writes all tiles of one launch together.
#pragma once

#include "models/methods/method.hpp"

namespace headroom {

/// `inner` has room for gate, up and their product of one tile, [tiles.tokens][F] each. Writes `result` [rows][D].
void describe_mlp_forward(Step& step, const Tiles& tiles, View in, TensorId inner, TensorId result);

struct MlpBackwardOperands {
    View in, gradient;  ///< the MLP's input, the gradient of its output, [rows][D]
};

struct MlpGradients {
    TensorId in;       ///< [rows][D]
    TensorId output;   ///< the output of one tile again
    TensorId weights;  ///< of gate, up and down
    TensorId added;    ///< of one of them, from a tile after the first
};

/// `inner` has room for gate, up, their product and its gradient. Runs each tile forward again, then backward.
void describe_mlp_backward(Step& step, const Tiles& tiles, const MlpBackwardOperands& from, TensorId inner,
                           const MlpGradients& into);

}  // namespace headroom
