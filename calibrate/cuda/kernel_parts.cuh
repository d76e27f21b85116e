// SPDX-License-Identifier: Apache-2.0
// What the kernels share: 16-byte accesses of bf16, sums over a block, launch shapes.
#pragma once

#include <algorithm>
#include <string>

#include "calibrate/cuda/errors.hpp"
#include "calibrate/cuda/kernels.hpp"

namespace headroom {

constexpr int lanes = 8;  // bf16 in 16 bytes
constexpr int block_threads = 256;

struct alignas(16) Pack {
    bf16 value[lanes];
};

struct Floats {
    float value[lanes];
};

/// 8 bf16 as they lie in four registers, for kernels that keep a row there.
struct alignas(16) Raw {
    unsigned word[lanes / 2];
    __device__ float operator[](int i) const {
        return __uint_as_float(i % 2 == 0 ? word[i / 2] << 16 : word[i / 2] & 0xffff0000U);
    }
    /// From here on the compiler knows nothing of the values: it would rather keep them as 32 bits each for a second
    /// use, and run out of registers, than shift again.
    __device__ void forget() {
#pragma unroll
        for (unsigned& one : word) asm volatile("" : "+r"(one));
    }
};
__device__ inline Raw load_raw(const bf16* from) { return *reinterpret_cast<const Raw*>(from); }

__device__ inline Floats load(const bf16* from) {
    const Pack pack = *reinterpret_cast<const Pack*>(from);
    Floats result;
#pragma unroll
    for (int i = 0; i < lanes; ++i) result.value[i] = __bfloat162float(pack.value[i]);
    return result;
}

__device__ inline void store(bf16* to, const Floats& from) {
    Pack pack;
#pragma unroll
    for (int i = 0; i < lanes; ++i) pack.value[i] = __float2bfloat16(from.value[i]);
    *reinterpret_cast<Pack*>(to) = pack;
}

__device__ inline Floats load(const float* from) {
    Floats result;
    *reinterpret_cast<float4*>(result.value) = *reinterpret_cast<const float4*>(from);
    *reinterpret_cast<float4*>(result.value + 4) = *reinterpret_cast<const float4*>(from + 4);
    return result;
}

__device__ inline void store(float* to, const Floats& from) {
    *reinterpret_cast<float4*>(to) = *reinterpret_cast<const float4*>(from.value);
    *reinterpret_cast<float4*>(to + 4) = *reinterpret_cast<const float4*>(from.value + 4);
}

/// Sum over the block, known to every thread; block_threads threads.
__device__ inline float block_sum(float value) {
    __shared__ float partial[block_threads / 32];
#pragma unroll
    for (int step = 16; step > 0; step /= 2) value += __shfl_xor_sync(~0U, value, step);
    __syncthreads();  // a former sum may still be read
    if (threadIdx.x % 32 == 0) partial[threadIdx.x / 32] = value;
    __syncthreads();
    float sum = 0;
#pragma unroll
    for (int i = 0; i < block_threads / 32; ++i) sum += partial[i];
    return sum;
}

/// Blocks for one thread per pack of 8 elements; the count stays within the grid's limit for every tensor here.
inline unsigned blocks_for(std::int64_t elements) {
    return static_cast<unsigned>((elements / lanes + block_threads - 1) / block_threads);
}

/// Index of this thread's first element.
__device__ inline std::int64_t first_element() {
    return (static_cast<std::int64_t>(blockIdx.x) * block_threads + threadIdx.x) * lanes;
}

inline void launched(const char* kernel) { check_cuda(cudaGetLastError(), std::string("launch of ") + kernel); }

}  // namespace headroom
