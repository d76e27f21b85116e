// SPDX-License-Identifier: Apache-2.0
// Kernels that only move bytes.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

namespace headroom {

/// Reads `read` bytes and writes `written` bytes, 16 at a time: what stands for element-wise work without a kernel of
/// its own.
void move_bytes(cudaStream_t stream, const void* in, std::int64_t read, void* out, std::int64_t written);
void fill_value(cudaStream_t stream, float* data, std::int64_t elements, float value);

}  // namespace headroom
