// SPDX-License-Identifier: Apache-2.0
// Rows of a table by token. Backward lists the rows of each token first, then one block sums those of one token: adding
// row by row in bf16 would lose what is a 256th of the sum.
#include "calibrate/cuda/kernel_parts.cuh"
#include "calibrate/cuda/schedule_kernels.hpp"

namespace headroom {
namespace {

constexpr int scan_threads = 1024;

__device__ std::int64_t row_of_thread() { return static_cast<std::int64_t>(blockIdx.x) * block_threads + threadIdx.x; }

__global__ void embedding_kernel(const bf16* table, const std::int64_t* tokens, bf16* out, Shape shape) {
    const std::int64_t i = first_element();
    if (i >= shape.rows * shape.columns) return;
    const std::int64_t row = i / shape.columns;
    *reinterpret_cast<Pack*>(out + i) =
        *reinterpret_cast<const Pack*>(table + tokens[row] * shape.columns + i % shape.columns);
}

__global__ void count_kernel(const std::int64_t* tokens, std::int64_t rows, int* counts) {
    const std::int64_t row = row_of_thread();
    if (row < rows) atomicAdd(&counts[tokens[row]], 1);
}

/// counts[v] becomes the number of rows with a token below v, for v up to `tokens`; one block, each thread a run of
/// them.
__global__ void __launch_bounds__(scan_threads) begin_kernel(int* counts, std::int64_t tokens) {
    __shared__ int of_threads[scan_threads];
    const auto thread = static_cast<int>(threadIdx.x);
    const std::int64_t each = (tokens + scan_threads) / scan_threads;
    const std::int64_t first = thread * each, last = min(first + each, tokens + 1);
    int mine = 0;
    for (std::int64_t v = first; v < last; ++v) mine += counts[v];
    of_threads[thread] = mine;
    __syncthreads();
    for (int step = 1; step < scan_threads; step *= 2) {
        const int before = thread >= step ? of_threads[thread - step] : 0;
        __syncthreads();
        of_threads[thread] += before;
        __syncthreads();
    }
    int below = of_threads[thread] - mine;
    for (std::int64_t v = first; v < last; ++v) {
        const int count = counts[v];
        counts[v] = below;
        below += count;
    }
}

__global__ void list_kernel(const std::int64_t* tokens, std::int64_t rows, int* next, int* list) {
    const std::int64_t row = row_of_thread();
    if (row < rows) list[atomicAdd(&next[tokens[row]], 1)] = static_cast<int>(row);
}

/// Behind list_kernel `ends[v]` is the end of token v's rows, and the beginning of those of v + 1.
__global__ void sum_rows_kernel(const bf16* gradient, const int* ends, const int* list, bf16* table_gradient,
                                std::int64_t columns) {
    const std::int64_t token = blockIdx.x;
    const std::int64_t column = (static_cast<std::int64_t>(blockIdx.y) * block_threads + threadIdx.x) * lanes;
    if (column >= columns) return;
    const int end = ends[token];
    Floats sum = {};
#pragma unroll 4
    for (int i = token == 0 ? 0 : ends[token - 1]; i < end; ++i) {
        const Floats one = load(gradient + list[i] * columns + column);
#pragma unroll
        for (int k = 0; k < lanes; ++k) sum.value[k] += one.value[k];
    }
    store(table_gradient + token * columns + column, sum);
}

}  // namespace

void embedding(cudaStream_t stream, const bf16* table, const std::int64_t* tokens, bf16* out, Shape shape) {
    embedding_kernel<<<blocks_for(shape.elements()), block_threads, 0, stream>>>(table, tokens, out, shape);
    launched("embedding");
}

std::int64_t embedding_scratch_bytes(std::int64_t rows, std::int64_t vocabulary) { return 4 * (vocabulary + 1 + rows); }

void embedding_backward(cudaStream_t stream, const bf16* gradient, const std::int64_t* tokens, bf16* table_gradient,
                        Shape shape, std::int64_t vocabulary, int* lists) {
    int *counts = lists, *list = lists + vocabulary + 1;
    const auto blocks = static_cast<unsigned>((shape.rows + block_threads - 1) / block_threads);
    check_cuda(cudaMemsetAsync(counts, 0, static_cast<std::size_t>(vocabulary + 1) * sizeof(int), stream),
               "cudaMemsetAsync");
    count_kernel<<<blocks, block_threads, 0, stream>>>(tokens, shape.rows, counts);
    begin_kernel<<<1, scan_threads, 0, stream>>>(counts, vocabulary);
    list_kernel<<<blocks, block_threads, 0, stream>>>(tokens, shape.rows, counts, list);
    const dim3 grid(static_cast<unsigned>(vocabulary), blocks_for(shape.columns));
    sum_rows_kernel<<<grid, block_threads, 0, stream>>>(gradient, counts, list, table_gradient, shape.columns);
    launched("embedding_backward");
}

}  // namespace headroom
