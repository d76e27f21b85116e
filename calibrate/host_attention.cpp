// SPDX-License-Identifier: Apache-2.0
// Attention of one launch, forwards and backwards, in plain arithmetic.
#include <algorithm>
#include <cmath>

#include "calibrate/host_device.hpp"
#include "calibrate/host_values.hpp"

namespace headroom {

void HostDevice::compute(Stream, const AttentionCall&, const Attention& shape, const Addresses& at) {
    const std::int64_t group = shape.heads / shape.kv_heads;
    const std::int64_t width = shape.head_dim;
    const double scale = 1.0 / std::sqrt(static_cast<double>(width));
    const auto row_of = [&](std::byte* tensor, std::int64_t row, std::int64_t head, std::int64_t heads) {
        return floats(tensor) + (row * heads + head) * width;
    };
    const auto dot = [&](const float* a, const float* b) {
        double sum = 0;
        for (std::int64_t i = 0; i < width; ++i) sum += static_cast<double>(a[i]) * static_cast<double>(b[i]);
        return sum;
    };
    float* exponents = floats(at[4]);
    std::vector<double> key_sums, value_sums;
    if (shape.backward) {
        key_sums.assign(static_cast<std::size_t>(shape.key_len * shape.kv_heads * width), 0.0);
        value_sums = key_sums;
    }
    std::vector<double> scores(static_cast<std::size_t>(shape.key_len));
    std::vector<double> row_sum(static_cast<std::size_t>(width));
    for (std::int64_t head = 0; head < shape.heads; ++head) {
        for (std::int64_t row = 0; row < shape.query_len; ++row) {
            const std::int64_t visible = shape.causal ? row + 1 : shape.key_len;
            const float* query = row_of(at[0], row, head, shape.heads);
            double largest = -INFINITY;
            for (std::int64_t k = 0; k < visible; ++k) {
                auto& score = scores[static_cast<std::size_t>(k)];
                score = scale * dot(query, row_of(at[1], k, head / group, shape.kv_heads));
                largest = std::max(largest, score);
            }
            float& exponent = exponents[head * shape.query_len + row];
            if (!shape.backward) {
                double total = 0;
                for (std::int64_t k = 0; k < visible; ++k) {
                    total += std::exp(scores[static_cast<std::size_t>(k)] - largest);
                }
                exponent = static_cast<float>(largest + std::log(total));
                std::fill(row_sum.begin(), row_sum.end(), 0.0);
                for (std::int64_t k = 0; k < visible; ++k) {
                    const double share = std::exp(scores[static_cast<std::size_t>(k)] - largest) / total;
                    const float* value = row_of(at[2], k, head / group, shape.kv_heads);
                    for (std::int64_t i = 0; i < width; ++i) {
                        row_sum[static_cast<std::size_t>(i)] += share * static_cast<double>(value[i]);
                    }
                }
                float* output = row_of(at[3], row, head, shape.heads);
                for (std::int64_t i = 0; i < width; ++i) {
                    output[i] = static_cast<float>(row_sum[static_cast<std::size_t>(i)]);
                }
                continue;
            }
            const float* output_gradient = row_of(at[5], row, head, shape.heads);
            const double delta = dot(output_gradient, row_of(at[3], row, head, shape.heads));
            std::fill(row_sum.begin(), row_sum.end(), 0.0);
            for (std::int64_t k = 0; k < visible; ++k) {
                const double share = std::exp(scores[static_cast<std::size_t>(k)] - static_cast<double>(exponent));
                const float* key = row_of(at[1], k, head / group, shape.kv_heads);
                const float* value = row_of(at[2], k, head / group, shape.kv_heads);
                const double slope = scale * share * (dot(output_gradient, value) - delta);
                const auto place = static_cast<std::size_t>((k * shape.kv_heads + head / group) * width);
                for (std::int64_t i = 0; i < width; ++i) {
                    const auto column = static_cast<std::size_t>(i);
                    row_sum[column] += slope * static_cast<double>(key[i]);
                    key_sums[place + column] += slope * static_cast<double>(query[i]);
                    value_sums[place + column] += share * static_cast<double>(output_gradient[i]);
                }
            }
            float* query_gradient = row_of(at[6], row, head, shape.heads);
            for (std::int64_t i = 0; i < width; ++i) {
                query_gradient[i] = static_cast<float>(row_sum[static_cast<std::size_t>(i)]);
            }
        }
    }
    for (std::size_t i = 0; i < key_sums.size(); ++i) {
        floats(at[7])[i] = static_cast<float>(key_sums[i]);
        floats(at[8])[i] = static_cast<float>(value_sums[i]);
    }
}

}  // namespace headroom
