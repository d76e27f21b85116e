// SPDX-License-Identifier: Apache-2.0
// Norms, the gate, the embedding, the loss and the optimizer in plain arithmetic.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "calibrate/host_device.hpp"
#include "calibrate/host_values.hpp"
#include "models/error.hpp"

namespace headroom {
namespace {

double inverse_rms(const float* row, std::int64_t width) {
    double squares = 0;
    for (std::int64_t i = 0; i < width; ++i) squares += static_cast<double>(row[i]) * static_cast<double>(row[i]);
    return 1.0 / std::sqrt(squares / static_cast<double>(width) + norm_epsilon);
}

double sigmoid(double x) { return 1.0 / (1.0 + std::exp(-x)); }

std::int64_t in_vocabulary(const char* what, std::int64_t token, std::int64_t vocabulary) {
    if (token >= 0 && token < vocabulary) return token;
    throw Error(fmt::format("{} {} is not one of {}", what, token, vocabulary), "calibrate check",
                "the schedule is wrong; please report it");
}

/// A row of logits becomes its gradient; returns the loss.
double cross_entropy(float* logits, std::int64_t columns, std::int64_t label, double weight) {
    const auto largest = static_cast<double>(*std::max_element(logits, logits + columns));
    double total = 0;
    for (std::int64_t i = 0; i < columns; ++i) total += std::exp(static_cast<double>(logits[i]) - largest);
    const double loss = largest + std::log(total) - static_cast<double>(logits[label]);
    for (std::int64_t i = 0; i < columns; ++i) {
        const double share = std::exp(static_cast<double>(logits[i]) - largest) / total;
        logits[i] = static_cast<float>((share - (i == label ? 1.0 : 0.0)) * weight);
    }
    return loss;
}

}  // namespace

void HostDevice::compute(Stream, const Norm& what, const Addresses& at) {
    const float* weight = floats(at[1]);
    for (std::int64_t row = 0; row < what.rows; ++row) {
        const float* in = floats(at[0]) + row * what.width;
        float* out = floats(at[2]) + row * what.width;
        const double scale = inverse_rms(in, what.width);
        for (std::int64_t i = 0; i < what.width; ++i) {
            out[i] = static_cast<float>(static_cast<double>(in[i]) * scale * static_cast<double>(weight[i]));
        }
    }
}

void HostDevice::compute(Stream, const NormBackward& what, const Addresses& at) {
    const float* weight = floats(at[1]);
    std::vector<double> weight_sums(static_cast<std::size_t>(what.width));
    for (std::int64_t row = 0; row < what.rows; ++row) {
        const float* in = floats(at[0]) + row * what.width;
        const float* gradient = floats(at[2]) + row * what.width;
        float* in_gradient = floats(at[3]) + row * what.width;
        const double scale = inverse_rms(in, what.width);
        double along = 0;  // of the gradient, in the direction of the normed row
        for (std::int64_t i = 0; i < what.width; ++i) {
            const double normed = static_cast<double>(in[i]) * scale;
            along += static_cast<double>(gradient[i]) * static_cast<double>(weight[i]) * normed;
            weight_sums[static_cast<std::size_t>(i)] += static_cast<double>(gradient[i]) * normed;
        }
        along /= static_cast<double>(what.width);
        for (std::int64_t i = 0; i < what.width; ++i) {
            const double through = static_cast<double>(gradient[i]) * static_cast<double>(weight[i]);
            in_gradient[i] = static_cast<float>(scale * (through - along * static_cast<double>(in[i]) * scale));
        }
    }
    std::transform(weight_sums.begin(), weight_sums.end(), floats(at[4]),
                   [](double sum) { return static_cast<float>(sum); });
}

void HostDevice::compute(Stream, const Gate& what, const Addresses& at) {
    for (std::int64_t i = 0; i < what.elements; ++i) {
        const auto gate = static_cast<double>(floats(at[0])[i]);
        floats(at[2])[i] = static_cast<float>(gate * sigmoid(gate) * static_cast<double>(floats(at[1])[i]));
    }
}

void HostDevice::compute(Stream, const GateBackward& what, const Addresses& at) {
    for (std::int64_t i = 0; i < what.elements; ++i) {
        const auto gate = static_cast<double>(floats(at[0])[i]);
        const auto up = static_cast<double>(floats(at[1])[i]);
        const auto gradient = static_cast<double>(floats(at[2])[i]);
        const double share = sigmoid(gate);
        floats(at[3])[i] = static_cast<float>(gradient * up * share * (1.0 + gate * (1.0 - share)));
        floats(at[4])[i] = static_cast<float>(gradient * gate * share);
    }
}

void HostDevice::compute(Stream, const Embedding& what, const Addresses& at) {
    for (std::int64_t row = 0; row < what.rows; ++row) {
        const std::int64_t token = in_vocabulary("token", integers(at[1])[row], what.vocabulary);
        std::copy_n(floats(at[0]) + token * what.width, what.width, floats(at[2]) + row * what.width);
    }
}

void HostDevice::compute(Stream, const EmbeddingBackward& what, const Addresses& at) {
    std::vector<double> sums(static_cast<std::size_t>(what.vocabulary * what.width));
    for (std::int64_t row = 0; row < what.rows; ++row) {
        const std::int64_t token = in_vocabulary("token", integers(at[1])[row], what.vocabulary);
        const float* gradient = floats(at[0]) + row * what.width;
        for (std::int64_t i = 0; i < what.width; ++i) {
            sums[static_cast<std::size_t>(token * what.width + i)] += static_cast<double>(gradient[i]);
        }
    }
    std::transform(sums.begin(), sums.end(), floats(at[2]), [](double sum) { return static_cast<float>(sum); });
}

void HostDevice::compute(Stream, const CrossEntropy& what, const Addresses& at) {
    for (std::int64_t row = 0; row < what.rows; ++row) {
        const std::int64_t label = in_vocabulary("label", integers(at[1])[row], what.columns);
        const double loss =
            cross_entropy(floats(at[0]) + row * what.columns, what.columns, label, static_cast<double>(what.weight));
        floats(at[2])[row] = static_cast<float>(loss);
        loss_ += loss;
    }
}

void HostDevice::compute(Stream, const Adam& what, const Addresses& at) {
    const int step = ++steps_[at[0]];
    const double first_share = 1.0 - std::pow(adam_settings.first_beta, step);
    const double second_share = 1.0 - std::pow(adam_settings.second_beta, step);
    for (std::int64_t i = 0; i < what.elements; ++i) {
        float& parameter = floats(at[0])[i];
        float& first = floats(at[1])[i];
        float& second = floats(at[2])[i];
        const auto gradient = static_cast<double>(floats(at[3])[i]);
        const double mean =
            adam_settings.first_beta * static_cast<double>(first) + (1 - adam_settings.first_beta) * gradient;
        const double square = adam_settings.second_beta * static_cast<double>(second) +
                              (1 - adam_settings.second_beta) * gradient * gradient;
        const double change = mean / first_share / (std::sqrt(square / second_share) + adam_settings.epsilon);
        first = static_cast<float>(mean);
        second = static_cast<float>(square);
        const auto before = static_cast<double>(parameter);
        parameter = static_cast<float>(before - adam_settings.rate * (change + adam_settings.decay * before));
    }
}

}  // namespace headroom
