// SPDX-License-Identifier: Apache-2.0
#include "calibrate/cuda/kernel_parts.cuh"
#include "calibrate/cuda/move.hpp"

namespace headroom {
namespace {

constexpr std::int64_t pack_bytes = 16;
constexpr int packs_of_thread = 4;  // in flight at once

__global__ void move_kernel(const uint4* in, std::int64_t read, uint4* out, std::int64_t written) {
    const std::int64_t first = static_cast<std::int64_t>(blockIdx.x) * (block_threads * packs_of_thread) + threadIdx.x;
    uint4 pack[packs_of_thread];
#pragma unroll
    for (int i = 0; i < packs_of_thread; ++i) {
        const std::int64_t at = first + i * block_threads;
        pack[i] = at < read ? in[at] : make_uint4(0, 0, 0, static_cast<unsigned>(at));
    }
#pragma unroll
    for (int i = 0; i < packs_of_thread; ++i) {
        const std::int64_t at = first + i * block_threads;
        // What is read beyond the last write must look needed, or the compiler leaves the load out.
        const bool never = pack[i].x == 0x7fc1dead && pack[i].y == 0x7fc1beef && pack[i].z == 0x1badcafe;
        if (at < written || never) out[at < written ? at : 0] = pack[i];
    }
}

__global__ void fill_value_kernel(float* data, std::int64_t elements, float value) {
    const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * block_threads + threadIdx.x;
    if (i < elements) data[i] = value;
}

}  // namespace

void move_bytes(cudaStream_t stream, const void* in, std::int64_t read, void* out, std::int64_t written) {
    const std::int64_t read_packs = read / pack_bytes, written_packs = written / pack_bytes;
    const std::int64_t packs = std::max(read_packs, written_packs);
    if (packs == 0) return;
    constexpr std::int64_t of_block = block_threads * packs_of_thread;
    move_kernel<<<static_cast<unsigned>((packs + of_block - 1) / of_block), block_threads, 0, stream>>>(
        static_cast<const uint4*>(in), read_packs, static_cast<uint4*>(out), written_packs);
    launched("move_bytes");
}

void fill_value(cudaStream_t stream, float* data, std::int64_t elements, float value) {
    const auto blocks = static_cast<unsigned>((elements + block_threads - 1) / block_threads);
    fill_value_kernel<<<blocks, block_threads, 0, stream>>>(data, elements, value);
    launched("fill_value");
}

}  // namespace headroom
