// SPDX-License-Identifier: Apache-2.0
// One thread for each 8 elements.
#include "calibrate/cuda/kernel_parts.cuh"

namespace headroom {
namespace {

__global__ void add_kernel(const bf16* a, const bf16* b, bf16* out, std::int64_t elements) {
    const std::int64_t i = first_element();
    if (i >= elements) return;
    Floats x = load(a + i);
    const Floats y = load(b + i);
#pragma unroll
    for (int k = 0; k < lanes; ++k) x.value[k] += y.value[k];
    store(out + i, x);
}

template <class In, class Out>
__global__ void cast_kernel(const In* in, Out* out, std::int64_t elements) {
    const std::int64_t i = first_element();
    if (i < elements) store(out + i, load(in + i));
}

enum class Type : int { bf16, fp32 };

__device__ float fetch(const void* data, std::int64_t i, Type type) {
    return type == Type::bf16 ? __bfloat162float(static_cast<const bf16*>(data)[i])
                              : static_cast<const float*>(data)[i];
}

/// Four elements a thread, a block apart, one access each.
__global__ void mixed_add_kernel(void* sum, Type sum_type, const void* term, Type term_type, std::int64_t elements) {
    constexpr int each = 4;
    const std::int64_t first = static_cast<std::int64_t>(blockIdx.x) * blockDim.x * each + threadIdx.x;
    float value[each];
#pragma unroll
    for (int k = 0; k < each; ++k) {
        const std::int64_t i = first + static_cast<std::int64_t>(k) * blockDim.x;
        if (i < elements) value[k] = fetch(sum, i, sum_type) + fetch(term, i, term_type);
    }
#pragma unroll
    for (int k = 0; k < each; ++k) {
        const std::int64_t i = first + static_cast<std::int64_t>(k) * blockDim.x;
        if (i >= elements) return;
        if (sum_type == Type::bf16) {
            static_cast<bf16*>(sum)[i] = __float2bfloat16(value[k]);
        } else {
            static_cast<float*>(sum)[i] = value[k];
        }
    }
}

void launch_mixed_add(cudaStream_t stream, void* sum, Type sum_type, const void* term, Type term_type,
                      std::int64_t elements) {
    constexpr int threads = 128;
    const auto blocks = static_cast<unsigned>((elements + 4 * threads - 1) / (4 * threads));
    mixed_add_kernel<<<blocks, threads, 0, stream>>>(sum, sum_type, term, term_type, elements);
    launched("mixed_add");
}

__device__ float sigmoid(float x) { return 1 / (1 + __expf(-x)); }

__global__ void swiglu_kernel(const bf16* gate, const bf16* up, bf16* out, std::int64_t elements) {
    const std::int64_t i = first_element();
    if (i >= elements) return;
    Floats g = load(gate + i);
    const Floats u = load(up + i);
#pragma unroll
    for (int k = 0; k < lanes; ++k) g.value[k] *= sigmoid(g.value[k]) * u.value[k];
    store(out + i, g);
}

__global__ void swiglu_backward_kernel(const bf16* gate, const bf16* up, const bf16* gradient, bf16* gate_gradient,
                                       bf16* up_gradient, std::int64_t elements) {
    const std::int64_t i = first_element();
    if (i >= elements) return;
    Floats g = load(gate + i);
    Floats u = load(up + i);
    const Floats d = load(gradient + i);
#pragma unroll
    for (int k = 0; k < lanes; ++k) {
        const float s = sigmoid(g.value[k]);
        const float silu = g.value[k] * s;
        const float slope = s * (1 + g.value[k] * (1 - s));
        g.value[k] = d.value[k] * u.value[k] * slope;
        u.value[k] = d.value[k] * silu;
    }
    store(gate_gradient + i, g);
    store(up_gradient + i, u);
}

/// value[2k], value[2k+1] times table[k], or its conjugate.
__device__ void turn(Floats& x, const float2* table, float sign) {
#pragma unroll
    for (int k = 0; k < lanes / 2; ++k) {
        const float2 factor = table[k];
        const float real = x.value[2 * k], imaginary = x.value[2 * k + 1];
        x.value[2 * k] = real * factor.x - sign * imaginary * factor.y;
        x.value[2 * k + 1] = sign * real * factor.y + imaginary * factor.x;
    }
}

template <class Element>
__global__ void rotary_kernel(const Element* in, const float2* table, Element* out, Shape shape, int head_dim,
                              float sign) {
    const std::int64_t i = first_element();
    if (i >= shape.rows * shape.columns) return;
    const std::int64_t row = i / shape.columns;
    const auto place = static_cast<int>(i % shape.columns % head_dim);
    Floats x = load(in + i);
    turn(x, table + row * (head_dim / 2) + place / 2, sign);
    store(out + i, x);
}

__global__ void swap_kernel(const bf16* in, bf16* out, std::int64_t outer, std::int64_t inner, std::int64_t row) {
    const std::int64_t i = first_element();
    if (i >= outer * inner * row) return;
    const std::int64_t place = i % row, pair = i / row;
    const std::int64_t a = pair / outer, b = pair % outer;  // of the result: [inner, outer]
    *reinterpret_cast<Pack*>(out + i) = *reinterpret_cast<const Pack*>(in + (b * inner + a) * row + place);
}

}  // namespace

void add(cudaStream_t stream, const bf16* a, const bf16* b, bf16* out, std::int64_t elements) {
    add_kernel<<<blocks_for(elements), block_threads, 0, stream>>>(a, b, out, elements);
    launched("add");
}

void cast_up(cudaStream_t stream, const bf16* in, float* out, std::int64_t elements) {
    cast_kernel<<<blocks_for(elements), block_threads, 0, stream>>>(in, out, elements);
    launched("cast_up");
}

void cast_down(cudaStream_t stream, const float* in, bf16* out, std::int64_t elements) {
    cast_kernel<<<blocks_for(elements), block_threads, 0, stream>>>(in, out, elements);
    launched("cast_down");
}

void mixed_add(cudaStream_t stream, bf16* sum, const float* term, std::int64_t elements) {
    launch_mixed_add(stream, sum, Type::bf16, term, Type::fp32, elements);
}
void mixed_add(cudaStream_t stream, float* sum, const bf16* term, std::int64_t elements) {
    launch_mixed_add(stream, sum, Type::fp32, term, Type::bf16, elements);
}

void complex_multiply(cudaStream_t stream, const float* in, const float2* table, float* out, Shape shape,
                      int head_dim) {
    rotary_kernel<<<blocks_for(shape.elements()), block_threads, 0, stream>>>(in, table, out, shape, head_dim, 1.0F);
    launched("complex_multiply");
}

void rotary(cudaStream_t stream, bf16* data, const float2* table, Shape shape, int head_dim, bool conjugate) {
    rotary_kernel<<<blocks_for(shape.elements()), block_threads, 0, stream>>>(data, table, data, shape, head_dim,
                                                                              conjugate ? -1.0F : 1.0F);
    launched("rotary");
}

void swap_axes(cudaStream_t stream, const bf16* in, bf16* out, std::int64_t outer, std::int64_t inner,
               std::int64_t row) {
    swap_kernel<<<blocks_for(outer * inner * row), block_threads, 0, stream>>>(in, out, outer, inner, row);
    launched("swap_axes");
}

void swiglu_forward(cudaStream_t stream, const bf16* gate, const bf16* up, bf16* out, std::int64_t elements) {
    swiglu_kernel<<<blocks_for(elements), block_threads, 0, stream>>>(gate, up, out, elements);
    launched("swiglu_forward");
}

void swiglu_backward(cudaStream_t stream, const bf16* gate, const bf16* up, const bf16* gradient, bf16* gate_gradient,
                     bf16* up_gradient, std::int64_t elements) {
    swiglu_backward_kernel<<<blocks_for(elements), block_threads, 0, stream>>>(gate, up, gradient, gate_gradient,
                                                                               up_gradient, elements);
    launched("swiglu_backward");
}

}  // namespace headroom
