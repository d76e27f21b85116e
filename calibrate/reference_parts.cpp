// SPDX-License-Identifier: Apache-2.0
#include "calibrate/reference_parts.hpp"

#include <random>

#include "calibrate/host_device.hpp"

namespace headroom {
namespace {

double inverse_rms(const double* row, std::size_t width) {
    double squares = 0;
    for (std::size_t i = 0; i < width; ++i) squares += row[i] * row[i];
    return 1.0 / std::sqrt(squares / static_cast<double>(width) + norm_epsilon);
}

}  // namespace

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

double projection_spread(std::int64_t width) {
    return 1.0 / std::pow(2.0, std::round(std::log2(std::sqrt(static_cast<double>(width)))));
}

std::vector<float> random_norm(std::int64_t count, std::uint32_t seed) {
    std::vector<float> values = random_values(count, 1.0, seed);
    for (float& value : values) value = 1.0F + std::round(16.0F * value) / 128.0F;
    return values;
}

ReferenceValues rms_norm(const ReferenceValues& in, std::span<const double> weight) {
    const std::size_t width = weight.size();
    ReferenceValues out(in.size());
    for (std::size_t row = 0; row < in.size(); row += width) {
        const double scale = inverse_rms(&in[row], width);
        for (std::size_t i = 0; i < width; ++i) out[row + i] = in[row + i] * scale * weight[i];
    }
    return out;
}

NormGradients rms_norm_gradients(const ReferenceValues& in, std::span<const double> weight,
                                 const ReferenceValues& gradient) {
    const std::size_t width = weight.size();
    NormGradients result{ReferenceValues(in.size()), ReferenceValues(width)};
    for (std::size_t row = 0; row < in.size(); row += width) {
        const double scale = inverse_rms(&in[row], width);
        double dot = 0;
        for (std::size_t i = 0; i < width; ++i) {
            dot += gradient[row + i] * weight[i] * in[row + i];
            result.weight[i] += gradient[row + i] * in[row + i] * scale;
        }
        // The scale depends on every element of the row: d scale / d x = -scale^3 x / width.
        const double slope = scale * scale * scale * dot / static_cast<double>(width);
        for (std::size_t i = 0; i < width; ++i) {
            result.in[row + i] = gradient[row + i] * weight[i] * scale - slope * in[row + i];
        }
    }
    return result;
}

void turn_heads(ReferenceValues& values, std::int64_t rows, std::int64_t width, std::int64_t head_dim, double sign) {
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

ReferenceValues CausalAttention::output() const {
    const std::int64_t d = model.head_dim;
    ReferenceValues out(query.size());
    for_each_row([&](std::int64_t head, std::int64_t kv_head, std::int64_t row, const ReferenceValues& shares) {
        double* o = &out[static_cast<std::size_t>((row * model.heads + head) * d)];
        for (std::int64_t k = 0; k <= row; ++k) {
            const double* v = &value[static_cast<std::size_t>((k * model.kv_heads + kv_head) * d)];
            for (std::int64_t i = 0; i < d; ++i) o[i] += shares[static_cast<std::size_t>(k)] * v[i];
        }
    });
    return out;
}

CausalGradients CausalAttention::gradients(const ReferenceValues& out, const ReferenceValues& out_gradient) const {
    const std::int64_t d = model.head_dim;
    const double scale = 1.0 / std::sqrt(static_cast<double>(d));
    CausalGradients result{ReferenceValues(query.size()), ReferenceValues(key.size()), ReferenceValues(value.size())};
    for_each_row([&](std::int64_t head, std::int64_t kv_head, std::int64_t row, const ReferenceValues& shares) {
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

}  // namespace headroom
