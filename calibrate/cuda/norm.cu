// SPDX-License-Identifier: Apache-2.0
// RMSNorm: forward one block for each row, backward each block many rows.
#include <cmath>

#include "calibrate/cuda/kernel_parts.cuh"
#include "models/error.hpp"

namespace headroom {
namespace {

__global__ void norm_kernel(const bf16* in, const bf16* weight, bf16* out, float* scale, Shape shape) {
    const std::int64_t row = static_cast<std::int64_t>(blockIdx.x) * shape.columns;
    float squares = 0;
    for (std::int64_t i = threadIdx.x * lanes; i < shape.columns; i += block_threads * lanes) {
        const Floats x = load(in + row + i);
#pragma unroll
        for (int k = 0; k < lanes; ++k) squares += x.value[k] * x.value[k];
    }
    const float factor = rsqrtf(block_sum(squares) / static_cast<float>(shape.columns) + norm_kernel_epsilon);
    if (scale != nullptr && threadIdx.x == 0) scale[blockIdx.x] = factor;
    for (std::int64_t i = threadIdx.x * lanes; i < shape.columns; i += block_threads * lanes) {
        Floats x = load(in + row + i);  // from the L1 cache
        const Floats w = load(weight + i);
#pragma unroll
        for (int k = 0; k < lanes; ++k) x.value[k] *= factor * w.value[k];
        store(out + row + i, x);
    }
}

/// Two packs of one row: a thread's columns threadIdx.x and blockDim.x + threadIdx.x, in packs.
struct Two {
    Raw pack[2];
    __device__ void forget() {
        pack[0].forget();
        pack[1].forget();
    }
};

__device__ Two load_two(const bf16* row, std::int64_t columns) {
    Two result = {};
#pragma unroll
    for (int p = 0; p < 2; ++p) {
        const std::int64_t i = (p * blockDim.x + threadIdx.x) * std::int64_t{lanes};
        if (i < columns) result.pack[p] = load_raw(row + i);
    }
    return result;
}

/// Sums over the row of x^2 and of gradient * weight * x.
struct RowSums {
    float squares, products;
};

__device__ RowSums warp_sum(RowSums sums) {
#pragma unroll
    for (int step = 16; step > 0; step /= 2) {
        sums.squares += __shfl_xor_sync(~0U, sums.squares, step);
        sums.products += __shfl_xor_sync(~0U, sums.products, step);
    }
    return sums;
}

/// Each block takes every gridDim-th row and keeps its part of the weight gradient in registers. The next row is on its
/// way while this one is summed; sums alternate between two places, so that one barrier a row is enough.
template <int most_threads, int blocks_each>
__global__ void __launch_bounds__(most_threads, blocks_each)
    norm_backward_kernel(const bf16* in, const bf16* weight, const bf16* gradient, bf16* in_gradient, float* partial,
                         Shape shape) {
    __shared__ RowSums of_warps[2][most_threads / 32];
    Two w = load_two(weight, shape.columns);
    Floats weight_gradient[2] = {};
    std::int64_t r = blockIdx.x;  // the grid has no more blocks than there are rows
    Two x = load_two(in + r * shape.columns, shape.columns), g = load_two(gradient + r * shape.columns, shape.columns);
    for (int turn = 0; r < shape.rows; turn ^= 1) {
        const std::int64_t next = r + gridDim.x;
        Two next_x = {}, next_g = {};
        if (next < shape.rows) {
            next_x = load_two(in + next * shape.columns, shape.columns);
            next_g = load_two(gradient + next * shape.columns, shape.columns);
        }
        RowSums sums = {};
#pragma unroll
        for (int p = 0; p < 2; ++p) {
#pragma unroll
            for (int k = 0; k < lanes; ++k) {
                sums.squares += x.pack[p][k] * x.pack[p][k];
                sums.products += g.pack[p][k] * w.pack[p][k] * x.pack[p][k];
            }
        }
        sums = warp_sum(sums);
        if (threadIdx.x % 32 == 0) of_warps[turn][threadIdx.x / 32] = sums;
        __syncthreads();
        sums = {};
        for (int i = 0; i < static_cast<int>(blockDim.x) / 32; ++i) {
            sums.squares += of_warps[turn][i].squares;
            sums.products += of_warps[turn][i].products;
        }
        const auto columns = static_cast<float>(shape.columns);
        const float factor = rsqrtf(sums.squares / columns + norm_kernel_epsilon);  // 1 / rms
        const float pull = factor * factor * factor * sums.products / columns;
        x.forget();
        g.forget();
        w.forget();
#pragma unroll
        for (int p = 0; p < 2; ++p) {
            const std::int64_t i = (p * blockDim.x + threadIdx.x) * std::int64_t{lanes};
            Floats out;
#pragma unroll
            for (int k = 0; k < lanes; ++k) {
                const float slope = factor * g.pack[p][k];
                weight_gradient[p].value[k] += slope * x.pack[p][k];
                out.value[k] = slope * w.pack[p][k] - pull * x.pack[p][k];
            }
            if (i < shape.columns) store(in_gradient + r * shape.columns + i, out);
        }
        x = next_x;
        g = next_g;
        r = next;
    }
#pragma unroll
    for (int p = 0; p < 2; ++p) {
        const std::int64_t i = (p * blockDim.x + threadIdx.x) * std::int64_t{lanes};
        if (i < shape.columns) store(partial + blockIdx.x * shape.columns + i, weight_gradient[p]);
    }
}

/// 32 columns a block, the rows shared by its 32 warps.
__global__ void __launch_bounds__(1024)
    column_sum_kernel(const float* partial, bf16* sum, int rows, std::int64_t columns) {
    __shared__ float sums[32][33];
    const std::int64_t column = static_cast<std::int64_t>(blockIdx.x) * 32 + threadIdx.x;
    float total = 0;
    if (column < columns) {
        for (int row = static_cast<int>(threadIdx.y); row < rows; row += 32) total += partial[row * columns + column];
    }
    sums[threadIdx.y][threadIdx.x] = total;
    __syncthreads();
    if (threadIdx.y != 0 || column >= columns) return;
    total = 0;
    for (int part = 0; part < 32; ++part) total += sums[part][threadIdx.x];
    sum[column] = __float2bfloat16(total);
}

constexpr std::int64_t norm_backward_blocks = 528;

/// Blocks that are resident at once, so that all take the same number of rows.
template <class Kernel>
int resident_blocks(Kernel kernel, int threads) {
    int gpu = 0, processors = 0, each = 0;
    check_cuda(cudaGetDevice(&gpu), "cudaGetDevice");
    check_cuda(cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, gpu), "cudaDeviceGetAttribute");
    check_cuda(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&each, kernel, threads, 0), "occupancy of norm_backward");
    return each * processors;
}

}  // namespace

void norm_forward(cudaStream_t stream, const bf16* in, const bf16* weight, bf16* out, float* scale, Shape shape) {
    norm_kernel<<<static_cast<unsigned>(shape.rows), block_threads, 0, stream>>>(in, weight, out, scale, shape);
    launched("norm_forward");
}

std::int64_t norm_backward_scratch_bytes(std::int64_t columns) { return 4 * norm_backward_blocks * columns; }

void norm_backward(cudaStream_t stream, const bf16* in, const bf16* weight, const bf16* gradient, bf16* in_gradient,
                   float* partial, bf16* weight_gradient, Shape shape) {
    const auto threads = static_cast<int>((shape.columns / (2 * lanes) + 31) / 32 * 32);
    int blocks = 0;
    const auto launch = [&](auto kernel) {
        blocks = static_cast<int>(std::min<std::int64_t>(
            std::min<std::int64_t>(norm_backward_blocks, resident_blocks(kernel, threads)), shape.rows));
        kernel<<<static_cast<unsigned>(blocks), static_cast<unsigned>(threads), 0, stream>>>(
            in, weight, gradient, in_gradient, partial, shape);
        launched("norm_backward");
    };
    // Two blocks on a multiprocessor have registers for the row in work and the next; three were slower.
    if (threads <= 256) {
        launch(norm_backward_kernel<256, 2>);
    } else if (threads <= 320) {
        launch(norm_backward_kernel<320, 2>);
    } else if (threads <= 512) {
        launch(norm_backward_kernel<512, 1>);
    } else if (threads <= 1024) {
        launch(norm_backward_kernel<1024, 1>);
    } else {
        throw Error("norm_backward takes rows of up to 16384 elements", "", "", ExitCode::failure);
    }
    const auto groups = static_cast<unsigned>((shape.columns + 31) / 32);
    column_sum_kernel<<<groups, dim3(32, 32), 0, stream>>>(partial, weight_gradient, blocks, shape.columns);
    launched("column_sum");
}

}  // namespace headroom
