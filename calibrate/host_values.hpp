// SPDX-License-Identifier: Apache-2.0
// How the host's plain arithmetic sees memory.
#pragma once

#include <cstddef>
#include <cstdint>

namespace headroom {

inline float* floats(std::byte* address) { return reinterpret_cast<float*>(address); }
inline double* doubles(std::byte* address) { return reinterpret_cast<double*>(address); }
inline const std::int64_t* integers(std::byte* address) { return reinterpret_cast<const std::int64_t*>(address); }

}  // namespace headroom
