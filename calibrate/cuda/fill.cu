// SPDX-License-Identifier: Apache-2.0
// What tensors hold at the beginning.
#include "calibrate/cuda/kernel_parts.cuh"
#include "calibrate/cuda/schedule_kernels.hpp"

namespace headroom {
namespace {

__device__ std::uint64_t mix(std::uint64_t x) {  // splitmix64
    x += 0x9e3779b97f4a7c15;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
    x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
    return x ^ (x >> 31);
}

__device__ float normal(std::uint64_t seed, std::int64_t place) {  // Box-Muller
    const std::uint64_t bits = mix(seed * 0x9e3779b97f4a7c15 + static_cast<std::uint64_t>(place));
    const float u = (static_cast<float>(bits >> 40) + 1.0F) * 0x1p-24F;
    const float v = static_cast<float>(bits & 0xffffff) * 0x1p-24F;
    return sqrtf(-2 * logf(u)) * cospif(2 * v);
}

__device__ std::int64_t thread_number() { return static_cast<std::int64_t>(blockIdx.x) * block_threads + threadIdx.x; }

unsigned blocks_of_threads(std::int64_t count) {
    return static_cast<unsigned>((count + block_threads - 1) / block_threads);
}

template <class Element>
__global__ void normal_kernel(Element* data, std::int64_t elements, std::uint64_t seed) {
    const std::int64_t i = thread_number();
    if (i < elements) data[i] = static_cast<Element>(normal(seed, i));
}

__global__ void places_kernel(float* data, std::int64_t elements, int base) {
    const std::int64_t i = thread_number();
    if (i < elements) data[i] = static_cast<float>(base + i % 997);
}

__global__ void weights_kernel(float* data, std::int64_t elements, WeightFill fill) {
    const std::int64_t i = thread_number();
    if (i >= elements) return;
    const std::int64_t place = fill.first + i;
    bool in_norm = false;
    for (const auto& ones : fill.ones) in_norm |= place >= ones[0] && place < ones[1];
    data[i] = in_norm ? 1 : fill.deviation * normal(fill.seed, place);
}

__global__ void rotary_table_kernel(float2* table, const std::int64_t* positions, std::int64_t rows, int pairs,
                                    double base) {
    const std::int64_t i = thread_number();
    if (i >= rows * pairs) return;
    const double share = static_cast<double>(i % pairs) / pairs;
    double sine = 0, cosine = 0;
    sincos(static_cast<double>(positions[i / pairs]) * pow(base, -share), &sine, &cosine);
    table[i] = {static_cast<float>(cosine), static_cast<float>(sine)};
}

}  // namespace

void fill_normal(cudaStream_t stream, bf16* data, std::int64_t elements, std::uint64_t seed) {
    normal_kernel<<<blocks_of_threads(elements), block_threads, 0, stream>>>(data, elements, seed);
    launched("fill_normal");
}

void fill_normal(cudaStream_t stream, float* data, std::int64_t elements, std::uint64_t seed) {
    normal_kernel<<<blocks_of_threads(elements), block_threads, 0, stream>>>(data, elements, seed);
    launched("fill_normal");
}

void fill_places(cudaStream_t stream, float* data, std::int64_t elements, int base) {
    places_kernel<<<blocks_of_threads(elements), block_threads, 0, stream>>>(data, elements, base);
    launched("fill_places");
}

void fill_weights(cudaStream_t stream, float* data, std::int64_t elements, const WeightFill& fill) {
    weights_kernel<<<blocks_of_threads(elements), block_threads, 0, stream>>>(data, elements, fill);
    launched("fill_weights");
}

void fill_rotary_table(cudaStream_t stream, float2* table, const std::int64_t* positions, std::int64_t rows, int pairs,
                       double base) {
    rotary_table_kernel<<<blocks_of_threads(rows * pairs), block_threads, 0, stream>>>(table, positions, rows, pairs,
                                                                                       base);
    launched("fill_rotary_table");
}

}  // namespace headroom
