// SPDX-License-Identifier: Apache-2.0
// Parts of device tensors on the host, to compare results with a reference in double.
#pragma once

#include <cstdint>
#include <vector>

#include "calibrate/cuda/kernels.hpp"

namespace headroom {

std::vector<double> download(const bf16* data, std::int64_t elements);
std::vector<double> download(const float* data, std::int64_t elements);

/// Relative L2 error gathered over any number of pieces; not a number when a result is.
class ErrorSum {
 public:
    void add(const std::vector<double>& result, const std::vector<double>& reference);
    double relative() const;

 private:
    double difference_ = 0, size_ = 0;
};

}  // namespace headroom
