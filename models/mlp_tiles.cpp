// SPDX-License-Identifier: Apache-2.0
// The tiled gated MLP tile by tile, as it is run. A plan writes all tiles of one launch together.
#include <algorithm>

#include "models/linear.hpp"
#include "models/mlp_tiles.hpp"

namespace headroom {
namespace {

struct Tile {
    std::int64_t rows;
    Bytes before;  ///< of the hidden state in front of it
};

template <class Body>
void for_each_tile(const Step& step, const Tiles& tiles, Body body) {
    const std::int64_t tokens = step.work.tokens;
    for (std::int64_t first = 0; first < tokens; first += tiles.tokens) {
        body(Tile{std::min(tiles.tokens, tokens - first), {step.work.element * first * step.work.model.hidden}});
    }
}

/// The wide tensors of one tile lie behind each other.
struct WideTensors {
    TensorId tensor;
    std::int64_t bytes;  ///< of one
    View operator[](std::int64_t i) const { return View(tensor) + i * bytes; }
};

WideTensors wide_tensors(const Step& step, const Tiles& tiles, TensorId tensor) {
    return {tensor, step.work.element * tiles.tokens * step.work.model.ffn};
}

/// gate and up of a tile.
void inner_forward(Step& step, std::int64_t rows, View in, View gate, View up) {
    const TransformerShape& model = step.work.model;
    step.to.gemm("MLP in", rows, model.ffn, model.hidden, 2);
    step.to.computes(linear_forward(rows, model.ffn, model.hidden, in, step.operands.gate_weight, gate));
    step.to.computes(linear_forward(rows, model.ffn, model.hidden, in, step.operands.up_weight, up));
}

}  // namespace

void describe_mlp_forward(Step& step, const Tiles& tiles, View in, TensorId inner, TensorId result) {
    const TransformerShape& model = step.work.model;
    const WideTensors wide = wide_tensors(step, tiles, inner);
    for_each_tile(step, tiles, [&](const Tile& tile) {
        const std::int64_t elements = tile.rows * model.ffn;
        inner_forward(step, tile.rows, in + tile.before.value, wide[0], wide[1]);
        step.eager("MLP activation", {3 * step.work.element * elements});
        step.to.computes(Gate{wide[0], wide[1], wide[2], elements});
        step.to.gemm("MLP out", tile.rows, model.hidden, model.ffn);
        step.to.computes(linear_forward(tile.rows, model.hidden, model.ffn, wide[2], step.operands.down_weight,
                                        View(result) + tile.before.value));
    });
}

void describe_mlp_backward(Step& step, const Tiles& tiles, const MlpBackwardOperands& from, TensorId inner,
                           const MlpGradients& into) {
    const Workload& work = step.work;
    const std::int64_t hidden = work.model.hidden, ffn = work.model.ffn;
    const Bytes matrix = work.weights(hidden * ffn);
    const WideTensors wide = wide_tensors(step, tiles, inner);
    const View gate = wide[0], up = wide[1], product = wide[2], product_gradient = wide[3];
    const Operands& weights = step.operands;
    for_each_tile(step, tiles, [&](const Tile& tile) {
        const std::int64_t rows = tile.rows, elements = rows * ffn;
        const View in = from.in + tile.before.value, gradient = from.gradient + tile.before.value;
        const View in_gradient = View(into.in) + tile.before.value;
        const bool first = tile.before.value == 0;
        // Later tiles add to the first one's.
        const auto weight_of = [&](const char* name, std::int64_t which, std::int64_t out, std::int64_t width, View dy,
                                   View x) {
            const View sum = View(into.weights) + which * matrix.value;
            step.to.gemm(name, out, width, rows);
            step.to.computes(linear_weight_gradient(rows, out, width, dy, x, first ? sum : View(into.added)));
            if (first) return;
            step.to.memory_bound("add MLP weight gradients", MemoryKernel::eager, 2 * matrix, matrix);
            step.to.computes(AddTo{sum, into.added, hidden * ffn, false});
        };
        inner_forward(step, rows, in, gate, up);
        step.eager("MLP activation again and backward", {3 * work.element * elements});
        step.to.computes(Gate{gate, up, product, elements});
        step.to.gemm("MLP out", rows, hidden, ffn);
        step.to.computes(linear_forward(rows, hidden, ffn, product, weights.down_weight, into.output));

        step.to.gemm("MLP out, input gradient", rows, ffn, hidden);
        step.to.computes(
            linear_input_gradient(rows, hidden, ffn, gradient, weights.down_weight, product_gradient, false));
        weight_of("MLP out, weight gradient", 2, hidden, ffn, gradient, product);
        step.eager("MLP activation again and backward", {5 * work.element * elements});
        step.to.computes(GateBackward{gate, up, product_gradient, gate, up, elements});
        step.to.gemm("MLP in, input gradient", rows, hidden, ffn, 2);
        step.to.computes(linear_input_gradient(rows, ffn, hidden, gate, weights.gate_weight, in_gradient, false));
        step.to.computes(linear_input_gradient(rows, ffn, hidden, up, weights.up_weight, in_gradient, true));
        weight_of("MLP in, weight gradient", 0, ffn, hidden, gate, in);
        weight_of("MLP in, weight gradient", 1, ffn, hidden, up, in);
    });
}

}  // namespace headroom
