// SPDX-License-Identifier: Apache-2.0
// Cross-entropy: loss and gradient of the logits, in place, reading each once where rows fit into registers.
#include <cooperative_groups.h>

#include <algorithm>
#include <cmath>

#include "calibrate/cuda/kernel_parts.cuh"

namespace headroom {
namespace {

/// Largest value and sum of exponentials below it, of two parts.
struct Mass {
    float top, sum;
};
__device__ Mass join(Mass a, Mass b) {
    const float top = fmaxf(a.top, b.top);
    return {top, a.sum * __expf(a.top - top) + b.sum * __expf(b.top - top)};
}
__device__ Mass warp_mass(Mass mass) {
#pragma unroll
    for (int step = 16; step > 0; step /= 2) {
        mass = join(mass, {__shfl_xor_sync(~0U, mass.top, step), __shfl_xor_sync(~0U, mass.sum, step)});
    }
    return mass;
}
constexpr float lowest = -1e30F;

/// 2^x of the special function unit; x = v * log2(e) - top * log2(e) is one multiply-add.
[[maybe_unused]] __device__ float exp2_fast(float x) {
    float result;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(x));
    return result;
}
[[maybe_unused]] constexpr float log2_e = 1.4426950408889634F;

/// 16 bytes from memory to shared memory, past the registers. `after` only keeps the compiler from issuing the copy
/// before that value is there.
[[maybe_unused]] __device__ void copy_later(Raw* to, const bf16* from, float after) {
    const auto place = static_cast<unsigned>(__cvta_generic_to_shared(to));
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(place), "l"(from), "f"(after) : "memory");
}
[[maybe_unused]] __device__ void wait_for_copies() { asm volatile("cp.async.wait_all;" ::: "memory"); }

/// A cluster of blocks takes every so-many-th row and holds it in its registers: memory sees each logit once in and
/// once out. The next row is on its way into shared memory meanwhile; each thread reads there only what it has asked
/// for itself, so no barrier stands between.
template <int blocks, int threads, int packs, int blocks_each>
__global__ void __launch_bounds__(threads, blocks_each)
    row_in_cluster_kernel(bf16* logits, const std::int64_t* labels, float* loss, Shape shape, float weight) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    extern __shared__ Raw next[];  // [packs][threads]
    __shared__ Mass of_warps[2][threads / 32], of_blocks[2][blocks];
    const auto cluster = cooperative_groups::this_cluster();
    const int place = static_cast<int>(blockIdx.x) % blocks, thread = static_cast<int>(threadIdx.x);
    const std::int64_t clusters = gridDim.x / blocks;
    const auto first = [&](int p) { return ((p * blocks + place) * threads + thread) * lanes; };
    const auto ask_for = [&](std::int64_t r, float after) {
        if (r >= shape.rows) return;
#pragma unroll
        for (int p = 0; p < packs; ++p) {
            if (first(p) < shape.columns) {
                copy_later(&next[p * threads + thread], logits + r * shape.columns + first(p), after);
            }
        }
    };
    std::int64_t r = blockIdx.x / blocks;
    ask_for(r, 0);
    cluster.sync();  // from here on the others' shared memory may be written
    for (int turn = 0; r < shape.rows; r += clusters, turn ^= 1) {
        wait_for_copies();
        Raw pack[packs];
        Mass mass{lowest, 0};
#pragma unroll
        for (int p = 0; p < packs; ++p) {
            if (first(p) >= shape.columns) continue;
            pack[p] = next[p * threads + thread];
#pragma unroll
            for (int k = 0; k < lanes; ++k) mass.top = fmaxf(mass.top, pack[p][k]);
        }
        ask_for(r + clusters, mass.top);
        const float shift = mass.top * log2_e;
#pragma unroll
        for (int p = 0; p < packs; ++p) {
            if (first(p) >= shape.columns) continue;
            pack[p].forget();
#pragma unroll
            for (int k = 0; k < lanes; ++k) mass.sum += exp2_fast(fmaf(pack[p][k], log2_e, -shift));
        }
        mass = warp_mass(mass);
        if (thread % 32 == 0) of_warps[turn][thread / 32] = mass;
        __syncthreads();
        if (thread < 32) {
            mass = warp_mass(thread < threads / 32 ? of_warps[turn][thread] : Mass{lowest, 0});
            if (thread < blocks) *cluster.map_shared_rank(&of_blocks[turn][place], thread) = mass;
        }
        // The places alternate: who writes this one again has passed the next row's barrier, before which all have
        // read.
        cluster.sync();
        mass = of_blocks[turn][0];
#pragma unroll
        for (int i = 1; i < blocks; ++i) mass = join(mass, of_blocks[turn][i]);

        bf16* row = logits + r * shape.columns;
        const auto label = static_cast<int>(labels[r]);
        const float share = weight / mass.sum, total_shift = mass.top * log2_e;
#pragma unroll
        for (int p = 0; p < packs; ++p) {
            if (first(p) >= shape.columns) continue;
            pack[p].forget();
            Floats out;
#pragma unroll
            for (int k = 0; k < lanes; ++k) {
                out.value[k] = share * exp2_fast(fmaf(pack[p][k], log2_e, -total_shift));
            }
            const int at = label - first(p);
            if (at >= 0 && at < lanes) {
#pragma unroll
                for (int k = 0; k < lanes; ++k) {  // a run-time index would put the array into local memory
                    if (k != at) continue;
                    loss[r] = mass.top + logf(mass.sum) - pack[p][k];
                    out.value[k] -= weight;
                }
            }
            store(row + first(p), out);
        }
    }
#endif
}

// Where there are no clusters, or rows are longer, a row is read twice. One wide block on each multiprocessor keeps the
// rows in work within the L2 cache; the dynamic shared memory, unused, keeps others away.
constexpr int wide_threads = 1024;
constexpr int keep_alone_bytes = 120 * 1024;

__global__ void __launch_bounds__(wide_threads)
    row_read_twice_kernel(bf16* logits, const std::int64_t* labels, float* loss, Shape shape, float weight) {
    __shared__ Mass of_warps[wide_threads / 32];
    bf16* row = logits + static_cast<std::int64_t>(blockIdx.x) * shape.columns;
    const std::int64_t label = labels[blockIdx.x];
    const float label_logit = __bfloat162float(row[label]);
    Mass mass{lowest, 0};
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
    mass = warp_mass(mass);
    if (threadIdx.x % 32 == 0) of_warps[threadIdx.x / 32] = mass;
    __syncthreads();  // stands before the first write below
    mass = warp_mass(of_warps[threadIdx.x % 32]);
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

bool has_clusters() {
    int gpu = 0, major = 0;
    check_cuda(cudaGetDevice(&gpu), "cudaGetDevice");
    check_cuda(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, gpu), "cudaDeviceGetAttribute");
    return major >= 9;
}

template <int blocks, int threads, int packs, int blocks_each>
void launch_in_clusters(cudaStream_t stream, bf16* logits, const std::int64_t* labels, float* loss, Shape shape,
                        float weight) {
    const auto kernel = row_in_cluster_kernel<blocks, threads, packs, blocks_each>;
    cudaLaunchAttribute cluster = {};
    cluster.id = cudaLaunchAttributeClusterDimension;
    cluster.val.clusterDim = {blocks, 1, 1};
    cudaLaunchConfig_t launch = {};
    launch.gridDim = dim3(static_cast<unsigned>(shape.rows * blocks));
    launch.blockDim = dim3(threads);
    launch.dynamicSmemBytes = packs * threads * sizeof(Raw);
    launch.stream = stream;
    launch.attrs = &cluster;
    launch.numAttrs = 1;
    check_cuda(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                    static_cast<int>(launch.dynamicSmemBytes)),
               "cudaFuncSetAttribute");
    int resident = 0;  // clusters at once, so that all take the same number of rows
    check_cuda(cudaOccupancyMaxActiveClusters(&resident, kernel, &launch), "occupancy of cross_entropy");
    launch.gridDim.x = static_cast<unsigned>(std::min<std::int64_t>(std::max(resident, 1), shape.rows) * blocks);
    check_cuda(cudaLaunchKernelEx(&launch, kernel, logits, labels, loss, shape, weight), "launch of cross_entropy");
}

}  // namespace

void cross_entropy(cudaStream_t stream, bf16* logits, const std::int64_t* labels, float* loss, Shape shape,
                   float weight) {
    constexpr int blocks = 8, threads = 256;
    constexpr std::int64_t columns = std::int64_t{blocks} * threads * lanes;  // of one pack a thread
    const bool clusters = has_clusters();
    if (clusters && shape.columns <= 4 * columns) {  // 65536
        launch_in_clusters<blocks, threads, 4, 4>(stream, logits, labels, loss, shape, weight);
    } else if (clusters && shape.columns <= 8 * columns) {  // 131072: Llama 3
        launch_in_clusters<blocks, threads, 8, 3>(stream, logits, labels, loss, shape, weight);
    } else if (clusters && shape.columns <= 10 * columns) {  // 163840: Qwen
        launch_in_clusters<blocks, threads, 10, 3>(stream, logits, labels, loss, shape, weight);
    } else {
        check_cuda(
            cudaFuncSetAttribute(row_read_twice_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, keep_alone_bytes),
            "cudaFuncSetAttribute");
        row_read_twice_kernel<<<static_cast<unsigned>(shape.rows), wide_threads, keep_alone_bytes, stream>>>(
            logits, labels, loss, shape, weight);
        launched("cross_entropy");
    }
}

}  // namespace headroom
