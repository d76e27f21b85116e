// SPDX-License-Identifier: Apache-2.0
// Does every method compute attention? Runs the lean schedules of all ranks on random input and compares the output and
// all gradients with attention computed directly, over the whole sequence, in double precision.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "calibrate/interpreter.hpp"
#include "models/workload.hpp"

namespace headroom {

/// One configuration: a method with its degrees on a small model.
struct CheckCase {
    std::string name;
    Workload work;  ///< of any rank; ring_rank is set for each
};

/// Every method at every way to divide `ranks`: ring, ulysses, each usp, upipe at every U, fpdt with two chunk sizes
/// with and without offload. With QK norm, one case of each method. `element` is 4 for plain arithmetic, 2 on a GPU.
std::vector<CheckCase> check_cases(int ranks, const TransformerShape& model, std::int64_t context,
                                   std::int64_t element);

/// Relative error, |a - b| / |b| over all elements, of each result.
struct CheckErrors {
    double output = 0, input_gradient = 0;
    double query_weight = 0, key_weight = 0, value_weight = 0, output_weight = 0;
    double query_norm = 0, key_norm = 0;  ///< 0 without QK norm
    std::int64_t peak_bytes = 0;          ///< of the largest rank

    double largest() const;
};

/// Called by the thread of the rank.
using DeviceFactory = std::function<std::unique_ptr<ComputeDevice>(int rank)>;

/// The input of a check and what must come out of it, the same for every case of one model and context.
class CheckReference {
 public:
    CheckReference(const TransformerShape& model, std::int64_t context);

    std::int64_t context() const { return context_; }
    // [rows][D] and [out][in]; values that every format holds exactly
    std::vector<float> input, query_weight, key_weight, value_weight, output_weight, result_gradient;
    std::vector<double> output, input_gradient, query_weight_gradient, key_weight_gradient, value_weight_gradient,
        output_weight_gradient;
    // Empty without QK norm.
    std::vector<float> query_norm, key_norm;
    std::vector<double> query_norm_gradient, key_norm_gradient;

 private:
    std::int64_t context_;
};

/// Runs one case, a thread for each rank. `give_up` is called when one rank fails, so that no other waits for it; the
/// first error is thrown. Throws Error, too, where tensors are left over.
CheckErrors check(const CheckCase& which, const CheckReference& reference, const DeviceFactory& make_device,
                  const std::function<void()>& give_up);

}  // namespace headroom
