// SPDX-License-Identifier: Apache-2.0
// Attention over a whole sequence and its gradients, written out.
#include <cmath>
#include <random>

#include "calibrate/check.hpp"
#include "calibrate/host_device.hpp"

namespace headroom {
namespace {

using Values = std::vector<double>;

/// Numbers with few bits, about normal.
std::vector<float> random_values(std::int64_t count, double spread, std::uint32_t seed) {
    std::mt19937 random(seed);
    std::vector<float> values(static_cast<std::size_t>(count));
    for (float& value : values) {
        double sum = -6;
        for (int i = 0; i < 12; ++i) sum += static_cast<double>(random() % 64) / 63.0;
        value = static_cast<float>(std::round(sum * 32) / 32 * spread);
    }
    return values;
}

/// a [m][k] times b [n][k] transposed.
template <class A, class B>
Values times_transposed(const A& a, const B& b, std::int64_t m, std::int64_t n, std::int64_t k) {
    Values result(static_cast<std::size_t>(m * n));
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
void add_product(Values& sum, const A& a, const B& b, std::int64_t m, std::int64_t n, std::int64_t k) {
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
Values transposed_times(const A& a, const B& b, std::int64_t m, std::int64_t n, std::int64_t k) {
    Values result(static_cast<std::size_t>(m * n));
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

void turn(Values& values, std::int64_t rows, std::int64_t width, std::int64_t head_dim, double sign) {
    for (std::int64_t row = 0; row < rows; ++row) {
        for (std::int64_t at = 0; at < width; at += 2) {
            const double angle =
                sign * rotary_angle(row, static_cast<int>(at % head_dim / 2), static_cast<int>(head_dim));
            double& x = values[static_cast<std::size_t>(row * width + at)];
            double& y = values[static_cast<std::size_t>(row * width + at + 1)];
            const double turned = x * std::cos(angle) - y * std::sin(angle);
            y = x * std::sin(angle) + y * std::cos(angle);
            x = turned;
        }
    }
}

struct AttentionGradients {
    Values query, key, value;
};

/// Causal attention of q [S][H][d] over k, v [S][Hkv][d]. Fills `out`; with an output gradient, the others as well.
struct CausalAttention {
    const TransformerShape& model;
    std::int64_t length;
    const Values &query, &key, &value;

    template <class Visit>
    void for_each_row(Visit visit) const {
        const std::int64_t d = model.head_dim;
        Values shares(static_cast<std::size_t>(length));
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

    Values output() const {
        const std::int64_t d = model.head_dim;
        Values out(query.size());
        for_each_row([&](std::int64_t head, std::int64_t kv_head, std::int64_t row, const Values& shares) {
            double* o = &out[static_cast<std::size_t>((row * model.heads + head) * d)];
            for (std::int64_t k = 0; k <= row; ++k) {
                const double* v = &value[static_cast<std::size_t>((k * model.kv_heads + kv_head) * d)];
                for (std::int64_t i = 0; i < d; ++i) o[i] += shares[static_cast<std::size_t>(k)] * v[i];
            }
        });
        return out;
    }

    AttentionGradients gradients(const Values& out, const Values& out_gradient) const {
        const std::int64_t d = model.head_dim;
        const double scale = 1.0 / std::sqrt(static_cast<double>(d));
        AttentionGradients result{Values(query.size()), Values(key.size()), Values(value.size())};
        for_each_row([&](std::int64_t head, std::int64_t kv_head, std::int64_t row, const Values& shares) {
            const auto at = static_cast<std::size_t>((row * model.heads + head) * d);
            double delta = 0;
            for (std::size_t i = 0; i < static_cast<std::size_t>(d); ++i) delta += out[at + i] * out_gradient[at + i];
            for (std::int64_t k = 0; k <= row; ++k) {
                const auto there = static_cast<std::size_t>((k * model.kv_heads + kv_head) * d);
                const double share = shares[static_cast<std::size_t>(k)];
                double dot = 0;
                for (std::size_t i = 0; i < static_cast<std::size_t>(d); ++i) {
                    dot += out_gradient[at + i] * value[there + i];
                }
                const double slope = scale * share * (dot - delta);
                for (std::size_t i = 0; i < static_cast<std::size_t>(d); ++i) {
                    result.query[at + i] += slope * key[there + i];
                    result.key[there + i] += slope * query[at + i];
                    result.value[there + i] += share * out_gradient[at + i];
                }
            }
        });
        return result;
    }
};

}  // namespace

CheckReference::CheckReference(const TransformerShape& model, std::int64_t context) : context_(context) {
    const std::int64_t hidden = model.hidden;
    const std::int64_t wide = model.query_width();
    const std::int64_t narrow = model.kv_width();
    // Projections of about unit variance.
    const double weight_spread = 1.0 / std::pow(2.0, std::round(std::log2(std::sqrt(static_cast<double>(hidden)))));
    input = random_values(context * hidden, 1.0, 1);
    query_weight = random_values(wide * hidden, weight_spread, 2);
    key_weight = random_values(narrow * hidden, weight_spread, 3);
    value_weight = random_values(narrow * hidden, weight_spread, 4);
    output_weight = random_values(hidden * wide, weight_spread, 5);
    result_gradient = random_values(context * hidden, 1.0, 6);

    Values query = times_transposed(input, query_weight, context, wide, hidden);
    Values key = times_transposed(input, key_weight, context, narrow, hidden);
    const Values value = times_transposed(input, value_weight, context, narrow, hidden);
    turn(query, context, wide, model.head_dim, 1);
    turn(key, context, narrow, model.head_dim, 1);
    const CausalAttention attention{model, context, query, key, value};
    const Values out = attention.output();
    output = times_transposed(out, output_weight, context, hidden, wide);

    Values out_gradient(out.size());
    add_product(out_gradient, result_gradient, output_weight, context, wide, hidden);
    output_weight_gradient = transposed_times(result_gradient, out, hidden, wide, context);
    AttentionGradients gradients = attention.gradients(out, out_gradient);
    turn(gradients.query, context, wide, model.head_dim, -1);
    turn(gradients.key, context, narrow, model.head_dim, -1);
    input_gradient.assign(input.size(), 0.0);
    add_product(input_gradient, gradients.query, query_weight, context, hidden, wide);
    add_product(input_gradient, gradients.key, key_weight, context, hidden, narrow);
    add_product(input_gradient, gradients.value, value_weight, context, hidden, narrow);
    query_weight_gradient = transposed_times(gradients.query, input, wide, hidden, context);
    key_weight_gradient = transposed_times(gradients.key, input, narrow, hidden, context);
    value_weight_gradient = transposed_times(gradients.value, input, narrow, hidden, context);
}

}  // namespace headroom
