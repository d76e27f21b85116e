// SPDX-License-Identifier: Apache-2.0
// Addresses of a schedule's tensors as the elements that lie there.
#pragma once

#include <cstddef>
#include <cstdint>

#include "calibrate/cuda/kernels.hpp"

namespace headroom {

inline bf16* halves(std::byte* address) { return reinterpret_cast<bf16*>(address); }
inline float* floats(std::byte* address) { return reinterpret_cast<float*>(address); }
inline const std::int64_t* integers(std::byte* address) { return reinterpret_cast<const std::int64_t*>(address); }

}  // namespace headroom
