// SPDX-License-Identifier: Apache-2.0
// Kernels that running a described schedule needs beside those that are measured.
#pragma once

#include "calibrate/cuda/kernels.hpp"
#include "models/computation.hpp"

namespace headroom {

/// Merge as models/computation.hpp has it: `exponent` is [heads][total_rows], `block_exponent` [heads][rows], `sum`
/// points to the first of `rows` rows.
void merge_rows(cudaStream_t stream, const Merge& what, int head_dim, float* sum, float* exponent, const bf16* block,
                const float* block_exponent);

}  // namespace headroom
