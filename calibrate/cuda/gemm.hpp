// SPDX-License-Identifier: Apache-2.0
// Matrix products through cuBLASLt, as a linear layer asks for them.
#pragma once

#include <memory>

#include "calibrate/device.hpp"

namespace headroom {

std::unique_ptr<PreparedProbe> prepare_gemm(const GemmProbe& probe);
/// "13.1.0"
std::string cublas_version_text();

}  // namespace headroom
