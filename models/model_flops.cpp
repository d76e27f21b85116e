// SPDX-License-Identifier: Apache-2.0
#include "models/model_flops.hpp"

namespace headroom {

ModelFlops model_flops(const Transformer& model, Tokens context, std::int64_t batch, AttentionCount count) {
    const ParameterCount parameters = count_parameters(model);
    // A tied head is not a parameter of its own, but it is multiplied all the same.
    const std::int64_t weights =
        parameters.layers * (parameters.block() - parameters.norms) + model.vocabulary * model.hidden;
    const auto length = static_cast<double>(context.value);
    const double tokens = length * static_cast<double>(batch);
    const double per_pair = count == AttentionCount::causal ? 6 : 12;
    ModelFlops flops;
    flops.weights = 6 * static_cast<double>(weights) * tokens;
    flops.attention = per_pair * static_cast<double>(model.layers * model.query_width()) * length * tokens;
    return flops;
}

}  // namespace headroom
