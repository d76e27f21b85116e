// SPDX-License-Identifier: Apache-2.0
// What references are written with: products, rotary embedding and attention in double precision, over whole sequences.
#pragma once

#include <cmath>
#include <cstdint>
#include <span>
#include <vector>

#include "models/transformer.hpp"

namespace headroom {

using ReferenceValues = std::vector<double>;

/// About normal, with a deviation of `spread`. Where that is a power of two, bf16 holds the numbers exactly.
std::vector<float> random_values(std::int64_t count, double spread, std::uint32_t seed);
/// Weights of a norm: multiples of 1/128 about 1.
std::vector<float> random_norm(std::int64_t count, std::uint32_t seed);
/// The power of two next to 1/sqrt(width): weights with this spread keep the variance of their input.
double projection_spread(std::int64_t width);

/// a [m][k] times b [n][k] transposed.
template <class A, class B>
ReferenceValues times_transposed(const A& a, const B& b, std::int64_t m, std::int64_t n, std::int64_t k) {
    ReferenceValues result(static_cast<std::size_t>(m * n));
    for (std::int64_t row = 0; row < m; ++row) {
        for (std::int64_t column = 0; column < n; ++column) {
            double sum = 0;
            for (std::int64_t i = 0; i < k; ++i) {
                sum += static_cast<double>(a[static_cast<std::size_t>(row * k + i)]) *
                       static_cast<double>(b[static_cast<std::size_t>(column * k + i)]);
            }
            result[static_cast<std::size_t>(row * n + column)] = sum;
        }
    }
    return result;
}

/// sum += a [m][k] times b [k][n].
template <class A, class B>
void add_product(ReferenceValues& sum, const A& a, const B& b, std::int64_t m, std::int64_t n, std::int64_t k) {
    for (std::int64_t row = 0; row < m; ++row) {
        for (std::int64_t i = 0; i < k; ++i) {
            const auto factor = static_cast<double>(a[static_cast<std::size_t>(row * k + i)]);
            for (std::int64_t column = 0; column < n; ++column) {
                sum[static_cast<std::size_t>(row * n + column)] +=
                    factor * static_cast<double>(b[static_cast<std::size_t>(i * n + column)]);
            }
        }
    }
}

/// a [k][m] transposed times b [k][n].
template <class A, class B>
ReferenceValues transposed_times(const A& a, const B& b, std::int64_t m, std::int64_t n, std::int64_t k) {
    ReferenceValues result(static_cast<std::size_t>(m * n));
    for (std::int64_t i = 0; i < k; ++i) {
        for (std::int64_t row = 0; row < m; ++row) {
            const auto factor = static_cast<double>(a[static_cast<std::size_t>(i * m + row)]);
            for (std::int64_t column = 0; column < n; ++column) {
                result[static_cast<std::size_t>(row * n + column)] +=
                    factor * static_cast<double>(b[static_cast<std::size_t>(i * n + column)]);
            }
        }
    }
    return result;
}

/// RMSNorm of rows as wide as `weight`, and its gradients.
ReferenceValues rms_norm(const ReferenceValues& in, std::span<const double> weight);
struct NormGradients {
    ReferenceValues in, weight;
};
NormGradients rms_norm_gradients(const ReferenceValues& in, std::span<const double> weight,
                                 const ReferenceValues& gradient);

/// Turns the heads of [rows][width] by the angles of their rows' positions, row r standing at position r; `sign` -1
/// turns them back.
void turn_heads(ReferenceValues& values, std::int64_t rows, std::int64_t width, std::int64_t head_dim, double sign);

struct CausalGradients {
    ReferenceValues query, key, value;
};

/// Causal attention of `query` [S][H][d] over `key` and `value` [S][Hkv][d], of S = `length` rows.
struct CausalAttention {
    const TransformerShape& model;
    std::int64_t length;
    const ReferenceValues &query, &key, &value;

    template <class Visit>
    void for_each_row(Visit visit) const {
        const std::int64_t d = model.head_dim;
        ReferenceValues shares(static_cast<std::size_t>(length));
        for (std::int64_t head = 0; head < model.heads; ++head) {
            const std::int64_t kv_head = head / model.group();
            for (std::int64_t row = 0; row < length; ++row) {
                const double* q = &query[static_cast<std::size_t>((row * model.heads + head) * d)];
                double total = 0;
                for (std::int64_t k = 0; k <= row; ++k) {
                    double score = 0;
                    const double* of_key = &key[static_cast<std::size_t>((k * model.kv_heads + kv_head) * d)];
                    for (std::int64_t i = 0; i < d; ++i) score += q[i] * of_key[i];
                    total += shares[static_cast<std::size_t>(k)] = std::exp(score / std::sqrt(static_cast<double>(d)));
                }
                for (std::int64_t k = 0; k <= row; ++k) shares[static_cast<std::size_t>(k)] /= total;
                visit(head, kv_head, row, shares);
            }
        }
    }

    ReferenceValues output() const;
    CausalGradients gradients(const ReferenceValues& out, const ReferenceValues& out_gradient) const;
};

}  // namespace headroom
