// SPDX-License-Identifier: Apache-2.0
#include "models/methods/qk_norm.hpp"

namespace headroom {

bool has_lean_qk_norm(const Step& step) {
    return step.work.model.qk_norm != QkNorm::none && step.work.recipe.implementation == Implementation::lean;
}

std::int64_t head_rows(const Step& step, Bytes bytes) {
    return bytes.value / step.work.element / step.work.model.head_dim;
}

void norm_heads(Step& step, View raw, View weight, View normed, Bytes bytes) {
    step.to.memory_bound("QK norm", MemoryKernel::norm_forward, bytes, bytes);
    step.to.computes(Norm{raw, weight, normed, head_rows(step, bytes), step.work.model.head_dim});
}

TensorId qk_norm_gradient(Step& step) {
    return step.weight_gradient("gradients of QK norms", step.work.model.qk_norm_weights());
}

View key_part(const Step& step, TensorId qk_norm_gradient) {
    return View(qk_norm_gradient) + step.work.weights(step.work.model.qk_norm_width(step.work.model.heads)).value;
}

QkNormGradients::QkNormGradients(Step& step)
    : step_(step),
      query_{step.operands.query_norm, 0, step.work.model.qk_norm_width(step.work.model.heads)},
      key_{step.operands.key_norm, query_.width, step.work.model.qk_norm_width(step.work.model.kv_heads)} {
    if (!has_lean_qk_norm(step)) return;
    const Bytes both = step.work.weights(step.work.model.qk_norm_weights());
    gradient_ = qk_norm_gradient(step);
    part_ = step.to.allocate("gradients of QK norms, of a part", Group::gradients, both);
    sum_ = step.to.allocate("gradients of QK norms, fp32", Group::gradients, 2 * both);
}

void QkNormGradients::through_query(View raw, View gradient, Bytes bytes) { through(query_, raw, gradient, bytes); }

void QkNormGradients::through_key(View raw, View gradient, Bytes bytes) { through(key_, raw, gradient, bytes); }

void QkNormGradients::through(Weight& weight, View raw, View gradient, Bytes bytes) {
    if (!has_lean_qk_norm(step_)) return;
    const Bytes before = step_.work.weights(weight.first);
    const View part = View(part_) + before.value;
    const View sum = View(sum_) + 2 * before.value;
    step_.to.memory_bound("QK norm backward", MemoryKernel::norm_backward, 2 * bytes, bytes);
    step_.to.computes(
        NormBackward{raw, weight.view, gradient, gradient, part, head_rows(step_, bytes), step_.work.model.head_dim});
    step_.mixed("add gradient of QK norm", 5 * step_.work.weights(weight.width));
    if (weight.begun) {
        step_.to.computes(AddTo{sum, part, weight.width});
    } else {
        step_.to.computes(Convert{part, sum, weight.width, true});
    }
    weight.begun = true;
}

void QkNormGradients::finish() {
    if (!has_lean_qk_norm(step_)) return;
    const std::int64_t weights = step_.work.model.qk_norm_weights();
    step_.eager("gradients of QK norms from fp32", 3 * step_.work.weights(weights));
    step_.to.computes(Convert{sum_, gradient_, weights, false});
    step_.release(part_, sum_);
}

}  // namespace headroom
