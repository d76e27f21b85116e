// SPDX-License-Identifier: Apache-2.0
// One block for each row: RMSNorm and cross-entropy.
#include <cmath>

#include "calibrate/cuda/kernel_parts.cuh"
#include "models/error.hpp"

namespace headroom {
namespace {

constexpr float epsilon = 1e-5F;

// Cross-entropy reads a row twice. One wide block on each multiprocessor keeps the rows in work (132 of 256 KB) within
// the L2 cache, so that the second read does not reach memory; the dynamic shared memory, unused, keeps others away.
constexpr int wide_threads = 1024;
constexpr int keep_alone_bytes = 120 * 1024;

__global__ void norm_kernel(const bf16* in, const bf16* weight, bf16* out, float* scale, Shape shape) {
    const std::int64_t row = static_cast<std::int64_t>(blockIdx.x) * shape.columns;
    float squares = 0;
    for (std::int64_t i = threadIdx.x * lanes; i < shape.columns; i += block_threads * lanes) {
        const Floats x = load(in + row + i);
#pragma unroll
        for (int k = 0; k < lanes; ++k) squares += x.value[k] * x.value[k];
    }
    const float factor = rsqrtf(block_sum(squares) / static_cast<float>(shape.columns) + epsilon);
    if (threadIdx.x == 0) scale[blockIdx.x] = factor;
    for (std::int64_t i = threadIdx.x * lanes; i < shape.columns; i += block_threads * lanes) {
        Floats x = load(in + row + i);  // from the L1 cache
        const Floats w = load(weight + i);
#pragma unroll
        for (int k = 0; k < lanes; ++k) x.value[k] *= factor * w.value[k];
        store(out + row + i, x);
    }
}

/// Each block takes every gridDim-th row and keeps its part of the weight gradient in registers.
template <int packs>
__global__ void norm_backward_kernel(const bf16* in, const bf16* weight, const float* scale, const bf16* gradient,
                                     bf16* in_gradient, float* partial, Shape shape) {
    Floats weight_gradient[packs] = {};
    for (std::int64_t r = blockIdx.x; r < shape.rows; r += gridDim.x) {
        const std::int64_t row = r * shape.columns;
        const float factor = scale[r];
        Floats x[packs], g[packs];
        float product = 0;
#pragma unroll
        for (int p = 0; p < packs; ++p) {
            const std::int64_t i = (p * block_threads + static_cast<int>(threadIdx.x)) * lanes;
            if (i >= shape.columns) continue;
            x[p] = load(in + row + i);
            g[p] = load(gradient + row + i);
            const Floats w = load(weight + i);
#pragma unroll
            for (int k = 0; k < lanes; ++k) {
                x[p].value[k] *= factor;
                weight_gradient[p].value[k] += g[p].value[k] * x[p].value[k];
                g[p].value[k] *= w.value[k];
                product += g[p].value[k] * x[p].value[k];
            }
        }
        const float mean = block_sum(product) / static_cast<float>(shape.columns);
#pragma unroll
        for (int p = 0; p < packs; ++p) {
            const std::int64_t i = (p * block_threads + static_cast<int>(threadIdx.x)) * lanes;
            if (i >= shape.columns) continue;
#pragma unroll
            for (int k = 0; k < lanes; ++k) g[p].value[k] = factor * (g[p].value[k] - x[p].value[k] * mean);
            store(in_gradient + row + i, g[p]);
        }
    }
#pragma unroll
    for (int p = 0; p < packs; ++p) {
        const std::int64_t i = (p * block_threads + static_cast<int>(threadIdx.x)) * lanes;
        if (i < shape.columns) store(partial + blockIdx.x * shape.columns + i, weight_gradient[p]);
    }
}

__global__ void column_sum_kernel(const float* partial, float* sum, int rows, std::int64_t columns) {
    const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
    if (i >= columns) return;
    float total = 0;
    for (int row = 0; row < rows; ++row) total += partial[row * columns + i];
    sum[i] = total;
}

/// Largest value and sum of exponentials below it, of two parts.
struct Mass {
    float top, sum;
};
__device__ Mass join(Mass a, Mass b) {
    const float top = fmaxf(a.top, b.top);
    return {top, a.sum * __expf(a.top - top) + b.sum * __expf(b.top - top)};
}

__device__ Mass block_mass(Mass mass) {
    __shared__ Mass partial[wide_threads / 32];
#pragma unroll
    for (int step = 16; step > 0; step /= 2) {
        mass = join(mass, {__shfl_xor_sync(~0U, mass.top, step), __shfl_xor_sync(~0U, mass.sum, step)});
    }
    if (threadIdx.x % 32 == 0) partial[threadIdx.x / 32] = mass;
    __syncthreads();
    Mass all = partial[0];
#pragma unroll
    for (int i = 1; i < wide_threads / 32; ++i) all = join(all, partial[i]);
    return all;
}

__global__ void __launch_bounds__(wide_threads)
    cross_entropy_kernel(bf16* logits, const int* labels, float* loss, Shape shape, float weight) {
    bf16* row = logits + static_cast<std::int64_t>(blockIdx.x) * shape.columns;
    const int label = labels[blockIdx.x];
    const float label_logit = __bfloat162float(row[label]);
    Mass mass{-1e30F, 0};
    for (std::int64_t i = threadIdx.x * lanes; i < shape.columns; i += wide_threads * lanes) {
        const Floats x = load(row + i);
        float top = mass.top;
#pragma unroll
        for (int k = 0; k < lanes; ++k) top = fmaxf(top, x.value[k]);
        float sum = mass.sum * __expf(mass.top - top);
#pragma unroll
        for (int k = 0; k < lanes; ++k) sum += __expf(x.value[k] - top);
        mass = {top, sum};
    }
    mass = block_mass(mass);  // its barrier stands before the first write below
    if (threadIdx.x == 0) loss[blockIdx.x] = mass.top + logf(mass.sum) - label_logit;
    const float share = weight / mass.sum;
    for (std::int64_t i = threadIdx.x * lanes; i < shape.columns; i += wide_threads * lanes) {
        Floats x = load(row + i);  // from the L2 cache
#pragma unroll
        for (int k = 0; k < lanes; ++k) {
            x.value[k] = share * __expf(x.value[k] - mass.top) - (i + k == label ? weight : 0.0F);
        }
        store(row + i, x);
    }
}

}  // namespace

void norm_forward(cudaStream_t stream, const bf16* in, const bf16* weight, bf16* out, float* scale, Shape shape) {
    norm_kernel<<<static_cast<unsigned>(shape.rows), block_threads, 0, stream>>>(in, weight, out, scale, shape);
    launched("norm_forward");
}

void norm_backward(cudaStream_t stream, const bf16* in, const bf16* weight, const float* scale, const bf16* gradient,
                   bf16* in_gradient, float* partial, float* weight_gradient, Shape shape) {
    constexpr int step = block_threads * lanes;
    const auto launch = [&](auto kernel) {
        kernel<<<norm_backward_blocks, block_threads, 0, stream>>>(in, weight, scale, gradient, in_gradient, partial,
                                                                   shape);
        launched("norm_backward");
    };
    if (shape.columns <= step) {
        launch(norm_backward_kernel<1>);
    } else if (shape.columns <= 2 * step) {
        launch(norm_backward_kernel<2>);
    } else if (shape.columns <= 4 * step) {
        launch(norm_backward_kernel<4>);
    } else {
        throw Error("norm_backward takes rows of up to 8192 elements", "", "", ExitCode::failure);
    }
    const auto blocks = static_cast<unsigned>((shape.columns + block_threads - 1) / block_threads);
    column_sum_kernel<<<blocks, block_threads, 0, stream>>>(partial, weight_gradient, norm_backward_blocks,
                                                            shape.columns);
    launched("column_sum");
}

void cross_entropy(cudaStream_t stream, bf16* logits, const int* labels, float* loss, Shape shape, float weight) {
    check_cuda(
        cudaFuncSetAttribute(cross_entropy_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, keep_alone_bytes),
        "cudaFuncSetAttribute");
    cross_entropy_kernel<<<static_cast<unsigned>(shape.rows), wide_threads, keep_alone_bytes, stream>>>(
        logits, labels, loss, shape, weight);
    launched("cross_entropy");
}

}  // namespace headroom
