// SPDX-License-Identifier: Apache-2.0
// Cross-entropy: loss and gradient of the logits, in place, reading each once where rows fit into registers.
#include <cooperative_groups.h>
#include <cuda_fp16.h>

#include <algorithm>
#include <cmath>

#include "calibrate/cuda/kernel_parts.cuh"

namespace headroom {
namespace {

constexpr float log2_e = 1.4426950408889634F;
constexpr float lowest = -1e30F;

/// Sum of 2^(x * log2(e) - shift) over some logits x, one of which is (shift + 15) / log2(e).
struct Mass {
    float shift, sum;
};
constexpr float headroom_bits = 15;

/// 2^x of the special function unit.
__device__ float exp2_fast(float x) {
    float result;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(x));
    return result;
}

/// Of a float as an integer with the same order, and back.
__device__ int ordered(int bits) { return bits ^ ((bits >> 31) & 0x7fffffff); }

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
__device__ float warp_max(float value) {
    return __int_as_float(ordered(__reduce_max_sync(~0U, ordered(__float_as_int(value)))));
}
/// Of each half, bf16.
__device__ unsigned max_of_pairs(unsigned a, unsigned b) {
    unsigned result;
    asm("max.bf16x2 %0, %1, %2;" : "=r"(result) : "r"(a), "r"(b));
    return result;
}
#endif
__device__ float warp_sum(float value) {
#pragma unroll
    for (int step = 16; step > 0; step /= 2) value += __shfl_xor_sync(~0U, value, step);
    return value;
}

__device__ unsigned to_halves(float low, float high) {
    const __half2 pair = __floats2half2_rn(low, high);
    return *reinterpret_cast<const unsigned*>(&pair);
}
__device__ float2 from_halves(unsigned word) { return __half22float2(*reinterpret_cast<const __half2*>(&word)); }

/// 16 bytes from memory to shared memory, past the registers. `after` only keeps the compiler from issuing the copy
/// before that value is there.
[[maybe_unused]] __device__ void copy_later(Raw* to, const bf16* from, unsigned after) {
    const auto place = static_cast<unsigned>(__cvta_generic_to_shared(to));
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(place), "l"(from), "r"(after) : "memory");
}
[[maybe_unused]] __device__ void wait_for_copies() { asm volatile("cp.async.wait_all;" ::: "memory"); }

/// A cluster of blocks takes every so-many-th row and holds it in its registers: memory sees each logit once in and
/// once out. The next row is on its way into shared memory meanwhile; each thread reads there only what it has asked
/// for itself, so no barrier stands between.
///
/// Each logit costs one exponential: 2^15 times that below its warp's largest logit takes the logit's place, in fp16,
/// until the whole row's sum is known. That is right to 2^-11, a quarter of what bf16 then rounds away, for logits up
/// to 20 below the largest of the warp's 2048; further below digits are lost, and from 27 on it is zero, where a
/// probability is below 2e-12.
template <int blocks, int threads, int packs, int blocks_each>
__global__ void __launch_bounds__(threads, blocks_each)
    row_in_cluster_kernel(bf16* logits, const std::int64_t* labels, float* loss, Shape shape, float weight) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    constexpr int warps = threads / 32, parts = blocks * warps;
    static_assert(parts % 32 == 0 && blocks <= 32);
    extern __shared__ Raw next[];      // [packs][threads]
    __shared__ Mass masses[2][parts];  // of every warp of the cluster, for this row and the next in turn
    const auto cluster = cooperative_groups::this_cluster();
    const int place = static_cast<int>(blockIdx.x) % blocks, thread = static_cast<int>(threadIdx.x);
    const int warp = thread / 32, lane = thread % 32;
    const std::int64_t clusters = gridDim.x / blocks;
    const auto first = [&](int p) { return ((p * blocks + place) * threads + thread) * lanes; };
    const auto ask_for = [&](std::int64_t r, unsigned after) {
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
        bf16* row = logits + r * shape.columns;
        const auto label = static_cast<int>(labels[r]);
        float label_logit = 0;
        if (place == 0 && thread == 0) label_logit = __bfloat162float(row[label]);
        wait_for_copies();
        Raw pack[packs];
        unsigned tops = 0xf149f149U;  // twice `lowest`
#pragma unroll
        for (int p = 0; p < packs; ++p) {
            if (first(p) >= shape.columns) continue;
            pack[p] = next[p * threads + thread];
#pragma unroll
            for (const unsigned word : pack[p].word) tops = max_of_pairs(tops, word);
        }
        ask_for(r + clusters, tops);
        const float top = warp_max(fmaxf(__uint_as_float(tops << 16), __uint_as_float(tops & 0xffff0000U)));
        const float shift = fmaf(top, log2_e, -headroom_bits);
        float sum = 0;
#pragma unroll
        for (int p = 0; p < packs; ++p) {
            if (first(p) >= shape.columns) continue;
#pragma unroll
            for (int k = 0; k < lanes; k += 2) {
                const float low = exp2_fast(fmaf(pack[p][k], log2_e, -shift));
                const float high = exp2_fast(fmaf(pack[p][k + 1], log2_e, -shift));
                sum += low + high;
                pack[p].word[k / 2] = to_halves(low, high);
            }
        }
        sum = warp_sum(sum);
        if (lane < blocks) *cluster.map_shared_rank(&masses[turn][place * warps + warp], lane) = {shift, sum};
        // The places alternate: who writes this one again has passed the next row's barrier, before which all have
        // read.
        cluster.sync();
        float row_shift = lowest;
#pragma unroll
        for (int i = lane; i < parts; i += 32) row_shift = fmaxf(row_shift, masses[turn][i].shift);
        row_shift = warp_max(row_shift);
        float row_sum = 0;
#pragma unroll
        for (int i = lane; i < parts; i += 32) {
            row_sum += masses[turn][i].sum * exp2_fast(masses[turn][i].shift - row_shift);
        }
        row_sum = warp_sum(row_sum);
        if (place == 0 && thread == 0) loss[r] = (row_shift + log2f(row_sum)) / log2_e - label_logit;

        const float share = weight / row_sum * exp2_fast(shift - row_shift);
#pragma unroll
        for (int p = 0; p < packs; ++p) {
            if (first(p) >= shape.columns) continue;
            Floats out;
#pragma unroll
            for (int k = 0; k < lanes; k += 2) {
                const float2 pair = from_halves(pack[p].word[k / 2]);
                out.value[k] = share * pair.x;
                out.value[k + 1] = share * pair.y;
            }
            const int at = label - first(p);
            if (at >= 0 && at < lanes) {
#pragma unroll
                for (int k = 0; k < lanes; ++k) {  // a run-time index would put the array into local memory
                    if (k == at) out.value[k] -= weight;
                }
            }
            store(row + first(p), out);
        }
    }
#endif
}

/// Largest value and sum of exponentials below it, of two parts.
struct Part {
    float top, sum;
};
__device__ Part warp_part(Part part) {
#pragma unroll
    for (int step = 16; step > 0; step /= 2) {
        const float top = __shfl_xor_sync(~0U, part.top, step), sum = __shfl_xor_sync(~0U, part.sum, step);
        const float larger = fmaxf(part.top, top);
        part = {larger, part.sum * __expf(part.top - larger) + sum * __expf(top - larger)};
    }
    return part;
}

// Where there are no clusters, or rows are longer, a row is read twice. One wide block on each multiprocessor keeps the
// rows in work within the L2 cache; the dynamic shared memory, unused, keeps others away.
constexpr int wide_threads = 1024;
constexpr int keep_alone_bytes = 120 * 1024;

__global__ void __launch_bounds__(wide_threads)
    row_read_twice_kernel(bf16* logits, const std::int64_t* labels, float* loss, Shape shape, float weight) {
    __shared__ Part of_warps[wide_threads / 32];
    bf16* row = logits + static_cast<std::int64_t>(blockIdx.x) * shape.columns;
    const std::int64_t label = labels[blockIdx.x];
    const float label_logit = __bfloat162float(row[label]);
    Part mass{lowest, 0};
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
    mass = warp_part(mass);
    if (threadIdx.x % 32 == 0) of_warps[threadIdx.x / 32] = mass;
    __syncthreads();  // stands before the first write below
    mass = warp_part(of_warps[threadIdx.x % 32]);
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
        launch_in_clusters<blocks, threads, 8, 4>(stream, logits, labels, loss, shape, weight);
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
