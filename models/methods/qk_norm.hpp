// SPDX-License-Identifier: Apache-2.0
// RMSNorm over every head of q and k, between projection and rotary embedding, as lean methods run it. However heads
// lie in blocks, they are rows of head_dim one behind the other.
#pragma once

#include "models/methods/method.hpp"

namespace headroom {

/// A lean method and a model with QK norm.
bool has_lean_qk_norm(const Step& step);

/// Rows of head_dim in `bytes` of q or k.
std::int64_t head_rows(const Step& step, Bytes bytes);
/// `normed` may lie over `raw`.
void norm_heads(Step& step, View raw, View weight, View normed, Bytes bytes);

/// Gradients of the weights: that of the key norm behind that of the query norm.
TensorId qk_norm_gradient(Step& step);
View key_part(const Step& step, TensorId qk_norm_gradient);

/// The same gradients where they come in parts, stage by stage or chunk by chunk; their sum is kept in fp32. Nothing
/// happens unless has_lean_qk_norm.
class QkNormGradients {
 public:
    explicit QkNormGradients(Step& step);
    /// The gradient of a part of q or of k becomes that of `raw`, which the norm had read.
    void through_query(View raw, View gradient, Bytes bytes);
    void through_key(View raw, View gradient, Bytes bytes);
    void finish();

 private:
    /// One of the two weights, its place in the gradients and whether their sum has begun.
    struct Weight {
        View view;
        std::int64_t first, width;
        bool begun = false;
    };
    void through(Weight& weight, View raw, View gradient, Bytes bytes);

    Step& step_;
    Weight query_, key_;
    TensorId gradient_ = no_tensor, part_ = no_tensor, sum_ = no_tensor;
};

}  // namespace headroom
