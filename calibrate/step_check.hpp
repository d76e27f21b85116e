// SPDX-License-Identifier: Apache-2.0
// Does every method train? Runs the described training step of all ranks on a small model with random weights, and
// compares loss, gradients and what the optimizer made of them with the step computed directly, in double precision.
#pragma once

#include "calibrate/check.hpp"
#include "calibrate/step_reference.hpp"

namespace headroom {

/// Every method at every way to divide `ranks`, with block inputs on the device and in pinned host memory, FSDP over
/// all ranks, and one case without checkpoints. With QK norm, one case of each method. The first of one rank is the
/// plainest.
std::vector<CheckCase> step_cases(int ranks, const TransformerShape& model, std::int64_t context, std::int64_t element);

struct NamedError {
    std::string name;
    double error;
};

/// Relative errors, |a - b| / |b| over all elements.
struct StepErrors {
    double loss = 0;
    std::vector<NamedError> gradients;  ///< of each kind of weight, over all blocks
    /// Of what AdamW changed in the parameters and kept in its moments, against the same step from the gradients that
    /// the ranks themselves computed. Those from the reference would not do: the first step goes by the sign of a
    /// gradient, which rounding turns where it is small, and the gradients have an error of their own above.
    double update = 0, moments = 0;
    std::int64_t peak_bytes = 0;  ///< of the largest rank

    double largest_gradient() const;
    /// All of them.
    std::vector<NamedError> named() const;
};

/// Runs one case, a thread for each rank; as `check` of attention.
StepErrors check_step(const CheckCase& which, const StepReference& reference, const DeviceFactory& make_device,
                      const std::function<void()>& give_up);

}  // namespace headroom
