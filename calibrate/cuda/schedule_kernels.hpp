// SPDX-License-Identifier: Apache-2.0
// Kernels that running a described schedule needs beside those that are measured.
#pragma once

#include "calibrate/cuda/kernels.hpp"
#include "models/computation.hpp"

namespace headroom {

/// Merge as models/computation.hpp has it: `exponent` is [heads][total_rows], `block_exponent` [heads][rows], `sum`
/// points to the first of `rows` rows.
void merge_rows(cudaStream_t stream, const Merge& what, float* sum, float* exponent, const bf16* block,
                const float* block_exponent);

/// out = rows of `table` that the tokens name.
void embedding(cudaStream_t stream, const bf16* table, const std::int64_t* tokens, bf16* out, Shape shape);
/// Every row of the table's gradient, summed in fp32 and rounded once; zeros where no token points. `lists` is scratch.
/// Up to 2^31 rows.
std::int64_t embedding_scratch_bytes(std::int64_t rows, std::int64_t vocabulary);
void embedding_backward(cudaStream_t stream, const bf16* gradient, const std::int64_t* tokens, bf16* table_gradient,
                        Shape shape, std::int64_t vocabulary, int* lists);

/// sum += all losses; the same bits every time.
void add_losses(cudaStream_t stream, const float* losses, std::int64_t rows, double* sum);

/// One step of AdamW; `first_share` and `second_share` are 1 - beta^steps, `decay` is taken off with the rate.
struct AdamFactors {
    float rate, first_beta, second_beta, epsilon, decay, first_share, second_share;
};
void adam_step(cudaStream_t stream, float* parameter, float* first_moment, float* second_moment, const float* gradient,
               std::int64_t elements, const AdamFactors& factors);

/// out = a + b; b alone where a is null. Of any number of elements.
void add_floats(cudaStream_t stream, const float* a, const float* b, float* out, std::int64_t elements);

/// A part of a flat tensor of weights, from its `first` element on: ones in two runs of norms, elsewhere normal random
/// numbers that depend on the seed and the place in the whole alone.
struct WeightFill {
    std::int64_t first;
    std::int64_t ones[2][2];  ///< [begin, end) in the whole
    std::uint64_t seed;
    float deviation;
};
void fill_weights(cudaStream_t stream, float* data, std::int64_t elements, const WeightFill& fill);

/// (cosine, sine) of position * base^(-pair / pairs), computed in double; `positions` on the device.
void fill_rotary_table(cudaStream_t stream, float2* table, const std::int64_t* positions, std::int64_t rows, int pairs,
                       double base);

}  // namespace headroom
