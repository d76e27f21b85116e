// SPDX-License-Identifier: Apache-2.0
#include "calibrate/cuda/kernel_parts.cuh"
#include "calibrate/cuda/schedule_kernels.hpp"

namespace headroom {
namespace {

/// One block a row and head; head_dim threads.
__global__ void merge_rows_kernel(float* sum, float* exponent, const bf16* block, const float* block_exponent,
                                  std::int64_t rows, std::int64_t first_row, std::int64_t total_rows, int heads,
                                  bool first) {
    const std::int64_t row = blockIdx.x;
    const int head = static_cast<int>(blockIdx.y);
    const std::int64_t at = (row * heads + head) * blockDim.x + threadIdx.x;
    float& running = exponent[head * total_rows + first_row + row];
    const float before = running;
    const float taken = block_exponent[head * rows + row];
    __syncthreads();
    if (first) {
        sum[at] = __bfloat162float(block[at]);
        if (threadIdx.x == 0) running = taken;
        return;
    }
    const float larger = fmaxf(before, taken);
    const float merged = larger + logf(expf(before - larger) + expf(taken - larger));
    sum[at] = expf(before - merged) * sum[at] + expf(taken - merged) * __bfloat162float(block[at]);
    if (threadIdx.x == 0) running = merged;
}

}  // namespace

void merge_rows(cudaStream_t stream, const Merge& what, int head_dim, float* sum, float* exponent, const bf16* block,
                const float* block_exponent) {
    const dim3 grid(static_cast<unsigned>(what.rows), static_cast<unsigned>(what.heads));
    merge_rows_kernel<<<grid, static_cast<unsigned>(head_dim), 0, stream>>>(
        sum, exponent, block, block_exponent, what.rows, what.first_row, what.total_rows, what.heads, what.first);
    launched("merge_rows");
}

}  // namespace headroom
