// SPDX-License-Identifier: Apache-2.0
// Kernels that no library gives. Tensors are [rows, columns], rows are tokens, bf16 unless a comment says fp32; columns
// are multiples of 8, pointers of 16 bytes. Each launches on `stream` and throws Error when the launch fails.
#pragma once

#include <cuda_bf16.h>
#include <cuda_runtime_api.h>

#include <cstdint>

namespace headroom {

using bf16 = __nv_bfloat16;  // NOLINT(readability-identifier-naming): a number format is written so

struct Shape {
    std::int64_t rows, columns;
    std::int64_t elements() const { return rows * columns; }
};

/// Normal random numbers, the same for the same seed.
void fill_normal(cudaStream_t stream, bf16* data, std::int64_t elements, std::uint64_t seed);
void fill_normal(cudaStream_t stream, float* data, std::int64_t elements, std::uint64_t seed);
/// base + place % 997: whole numbers whose sums over ranks are exact.
void fill_places(cudaStream_t stream, float* data, std::int64_t elements, int base);

/// out = a + b, eager.
void add(cudaStream_t stream, const bf16* a, const bf16* b, bf16* out, std::int64_t elements);
void cast_up(cudaStream_t stream, const bf16* in, float* out, std::int64_t elements);
void cast_down(cudaStream_t stream, const float* in, bf16* out, std::int64_t elements);
/// in place, and the type of each operand is decided for each element at run time, as eager frameworks do it.
void mixed_add(cudaStream_t stream, bf16* sum, const float* term, std::int64_t elements);
void mixed_add(cudaStream_t stream, float* sum, const bf16* term, std::int64_t elements);

/// Pairs (2i, 2i+1) of each head as complex numbers times table[row, i] = (cosine, sine); head_dim / 2 pairs.
void complex_multiply(cudaStream_t stream, const float* in, const float2* table, float* out, Shape shape, int head_dim);
/// The same fused, in place on bf16. `conjugate` turns back, as backward does.
void rotary(cudaStream_t stream, bf16* data, const float2* table, Shape shape, int head_dim, bool conjugate);

/// [outer, inner, row] to [inner, outer, row], `row` elements each.
void swap_axes(cudaStream_t stream, const bf16* in, bf16* out, std::int64_t outer, std::int64_t inner,
               std::int64_t row);

/// Added to the mean square of a row.
inline constexpr float norm_kernel_epsilon = 1e-5F;
/// RMSNorm. `scale` (fp32 [rows]) takes 1/rms, or is null.
void norm_forward(cudaStream_t stream, const bf16* in, const bf16* weight, bf16* out, float* scale, Shape shape);
/// `partial` is scratch for the weight gradient ([columns]), which is summed in fp32. Up to 16384 columns.
std::int64_t norm_backward_scratch_bytes(std::int64_t columns);
void norm_backward(cudaStream_t stream, const bf16* in, const bf16* weight, const bf16* gradient, bf16* in_gradient,
                   float* partial, bf16* weight_gradient, Shape shape);

/// out = silu(gate) * up
void swiglu_forward(cudaStream_t stream, const bf16* gate, const bf16* up, bf16* out, std::int64_t elements);
/// The gradients may lie over gate and up.
void swiglu_backward(cudaStream_t stream, const bf16* gate, const bf16* up, const bf16* gradient, bf16* gate_gradient,
                     bf16* up_gradient, std::int64_t elements);

/// logits [rows, vocabulary] become their gradient, (softmax - one at the label) * weight; loss is fp32 [rows].
void cross_entropy(cudaStream_t stream, bf16* logits, const std::int64_t* labels, float* loss, Shape shape,
                   float weight);

}  // namespace headroom
