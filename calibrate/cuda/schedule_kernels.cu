// SPDX-License-Identifier: Apache-2.0
#include "calibrate/cuda/schedule_kernels.hpp"

#include "calibrate/cuda/kernel_parts.cuh"

namespace headroom {
namespace {

/// Weights exp(x) / (exp(old) + exp(new)), without overflow: 1 for the first block.
__device__ float new_share(const Merge& what, float old_exponent, float new_exponent) {
    return what.first ? 1 : 1 / (1 + __expf(old_exponent - new_exponent));
}

__global__ void merge_rows_kernel(Merge what, float* sum, const float* exponent, const bf16* block,
                                  const float* block_exponent) {
    const std::int64_t i = first_element();
    const std::int64_t row_head = i / what.head_dim, row = row_head / what.heads, head = row_head % what.heads;
    if (row >= what.rows) return;
    const Floats y = load(block + i);
    if (what.first) return store(sum + i, y);
    const float share = new_share(what, exponent[head * what.total_rows + what.first_row + row],
                                  block_exponent[head * what.rows + row]);
    Floats x = load(sum + i);
#pragma unroll
    for (int k = 0; k < lanes; ++k) x.value[k] += share * (y.value[k] - x.value[k]);
    store(sum + i, x);
}

__global__ void merge_exponents_kernel(Merge what, float* exponent, const float* block_exponent) {
    const std::int64_t row = static_cast<std::int64_t>(blockIdx.x) * block_threads + threadIdx.x;
    if (row >= what.rows) return;
    float& running = exponent[blockIdx.y * what.total_rows + what.first_row + row];
    const float old_exponent = running, new_exponent = block_exponent[blockIdx.y * what.rows + row];
    running = what.first ? new_exponent
                         : fmaxf(old_exponent, new_exponent) + log1pf(__expf(-fabsf(old_exponent - new_exponent)));
}

/// Sum over the block of 1024 threads, in the first of them.
__device__ double wide_block_sum(double value) {
    __shared__ double of_warps[32];
    for (int step = 16; step > 0; step /= 2) value += __shfl_down_sync(~0U, value, step);
    if (threadIdx.x % 32 == 0) of_warps[threadIdx.x / 32] = value;
    __syncthreads();
    value = of_warps[threadIdx.x % 32];
    for (int step = 16; step > 0; step /= 2) value += __shfl_down_sync(~0U, value, step);
    return value;
}

__global__ void __launch_bounds__(1024) add_losses_kernel(const float* losses, std::int64_t rows, double* sum) {
    double mine = 0;
    for (std::int64_t i = threadIdx.x; i < rows; i += 1024) mine += losses[i];
    const double all = wide_block_sum(mine);
    if (threadIdx.x == 0) *sum += all;
}

__device__ void adam_element(float& parameter, float& first, float& second, float gradient, const AdamFactors& f) {
    first = f.first_beta * first + (1 - f.first_beta) * gradient;
    second = f.second_beta * second + (1 - f.second_beta) * gradient * gradient;
    const float change = first / f.first_share / (sqrtf(second / f.second_share) + f.epsilon);
    parameter -= f.rate * (change + f.decay * parameter);
}

__global__ void adam_kernel(float* parameter, float* first, float* second, const float* gradient, std::int64_t elements,
                            AdamFactors factors) {
    const std::int64_t i = (static_cast<std::int64_t>(blockIdx.x) * block_threads + threadIdx.x) * 4;
    if (i >= elements) return;
    auto vector = [i](auto* data) { return reinterpret_cast<float4*>(const_cast<float*>(data) + i); };
    float4 p = *vector(parameter), m = *vector(first), v = *vector(second);
    const float4 g = __ldcs(vector(gradient));
    adam_element(p.x, m.x, v.x, g.x, factors);
    adam_element(p.y, m.y, v.y, g.y, factors);
    adam_element(p.z, m.z, v.z, g.z, factors);
    adam_element(p.w, m.w, v.w, g.w, factors);
    *vector(parameter) = p;
    *vector(first) = m;
    *vector(second) = v;
}

__global__ void add_floats_kernel(const float* a, const float* b, float* out, std::int64_t elements) {
    const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * block_threads + threadIdx.x;
    if (i < elements) out[i] = (a == nullptr ? 0 : a[i]) + b[i];
}

unsigned blocks_of(std::int64_t threads) {
    return static_cast<unsigned>((threads + block_threads - 1) / block_threads);
}

}  // namespace

void merge_rows(cudaStream_t stream, const Merge& what, float* sum, float* exponent, const bf16* block,
                const float* block_exponent) {
    const std::int64_t elements = what.rows * what.heads * what.head_dim;
    merge_rows_kernel<<<blocks_for(elements), block_threads, 0, stream>>>(what, sum, exponent, block, block_exponent);
    launched("merge_rows");
    const dim3 grid(blocks_of(what.rows), static_cast<unsigned>(what.heads));
    merge_exponents_kernel<<<grid, block_threads, 0, stream>>>(what, exponent, block_exponent);
    launched("merge_exponents");
}

void add_losses(cudaStream_t stream, const float* losses, std::int64_t rows, double* sum) {
    add_losses_kernel<<<1, 1024, 0, stream>>>(losses, rows, sum);
    launched("add_losses");
}

void adam_step(cudaStream_t stream, float* parameter, float* first_moment, float* second_moment, const float* gradient,
               std::int64_t elements, const AdamFactors& factors) {
    adam_kernel<<<blocks_of(elements / 4), block_threads, 0, stream>>>(parameter, first_moment, second_moment, gradient,
                                                                       elements, factors);
    launched("adam_step");
}

void add_floats(cudaStream_t stream, const float* a, const float* b, float* out, std::int64_t elements) {
    add_floats_kernel<<<blocks_of(elements), block_threads, 0, stream>>>(a, b, out, elements);
    launched("add_floats");
}

}  // namespace headroom
