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

/// RMSNorm; `scale` (fp32 [rows]) is 1/rms and goes to backward.
void norm_forward(cudaStream_t stream, const bf16* in, const bf16* weight, bf16* out, float* scale, Shape shape);
/// `partial` is fp32 [norm_backward_blocks, columns], scratch for the weight gradient (fp32 [columns]).
inline constexpr int norm_backward_blocks = 528;
void norm_backward(cudaStream_t stream, const bf16* in, const bf16* weight, const float* scale, const bf16* gradient,
                   bf16* in_gradient, float* partial, float* weight_gradient, Shape shape);

/// out = silu(gate) * up
void swiglu_forward(cudaStream_t stream, const bf16* gate, const bf16* up, bf16* out, std::int64_t elements);
void swiglu_backward(cudaStream_t stream, const bf16* gate, const bf16* up, const bf16* gradient, bf16* gate_gradient,
                     bf16* up_gradient, std::int64_t elements);

/// Adds the attention of one more key block: sum (fp32) and its log-sum-exp (fp32 [rows, heads]) take in `block` and
/// `block_exponent`.
void merge(cudaStream_t stream, float* sum, float* exponent, const bf16* block, const float* block_exponent,
           Shape shape, int head_dim);

/// logits [rows, vocabulary] become their gradient, (softmax - one at the label) * weight; loss is fp32 [rows].
void cross_entropy(cudaStream_t stream, bf16* logits, const int* labels, float* loss, Shape shape, float weight);

}  // namespace headroom
