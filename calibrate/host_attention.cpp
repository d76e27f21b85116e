// SPDX-License-Identifier: Apache-2.0
// Attention of one launch, forwards and backwards, in plain arithmetic.
#include <algorithm>
#include <cmath>

#include "calibrate/host_device.hpp"
#include "calibrate/host_values.hpp"

namespace headroom {
namespace {

/// The tensors of a launch, row by row.
class AttentionRows {
 public:
    AttentionRows(const Attention& shape, const Addresses& at)
        : shape_(shape),
          at_(at),
          group_(shape.heads / shape.kv_heads),
          width_(static_cast<std::size_t>(shape.head_dim)),
          scale_(1.0 / std::sqrt(static_cast<double>(shape.head_dim))),
          scores_(static_cast<std::size_t>(shape.key_len)),
          sum_(width_) {}

    void forward() {
        for_each_row([&](std::int64_t row, std::int64_t head) {
            const double exponent = log_sum();
            floats(at_[4])[head * shape_.query_len + row] = static_cast<float>(exponent);
            for (std::size_t k = 0; k < visible_; ++k) add(std::exp(scores_[k] - exponent), key_row(2, k, head));
            write_sum(query_row(3, row, head));
        });
    }

    void backward() {
        std::vector<double> key_sums(static_cast<std::size_t>(shape_.key_len * shape_.kv_heads) * width_);
        std::vector<double> value_sums(key_sums.size());
        for_each_row([&](std::int64_t row, std::int64_t head) {
            const auto exponent = static_cast<double>(floats(at_[4])[head * shape_.query_len + row]);
            const float* query = query_row(0, row, head);
            const float* gradient = query_row(5, row, head);
            const double delta = dot(gradient, query_row(3, row, head));
            for (std::size_t k = 0; k < visible_; ++k) {
                const double share = std::exp(scores_[k] - exponent);
                const double slope = scale_ * share * (dot(gradient, key_row(2, k, head)) - delta);
                add(slope, key_row(1, k, head));
                const std::size_t place = key_place(k, head);
                for (std::size_t i = 0; i < width_; ++i) {
                    key_sums[place + i] += slope * static_cast<double>(query[i]);
                    value_sums[place + i] += share * static_cast<double>(gradient[i]);
                }
            }
            write_sum(query_row(6, row, head));
        });
        const auto narrow = [](double value) { return static_cast<float>(value); };
        std::transform(key_sums.begin(), key_sums.end(), floats(at_[7]), narrow);
        std::transform(value_sums.begin(), value_sums.end(), floats(at_[8]), narrow);
    }

 private:
    /// Of every query row with the scores of the keys that it sees, and a sum of zeros.
    template <class Visit>
    void for_each_row(Visit visit) {
        for (std::int64_t head = 0; head < shape_.heads; ++head) {
            for (std::int64_t row = 0; row < shape_.query_len; ++row) {
                visible_ = static_cast<std::size_t>(shape_.causal ? row + 1 : shape_.key_len);
                const float* query = query_row(0, row, head);
                for (std::size_t k = 0; k < visible_; ++k) scores_[k] = scale_ * dot(query, key_row(1, k, head));
                std::fill(sum_.begin(), sum_.end(), 0.0);
                visit(row, head);
            }
        }
    }

    double log_sum() const {
        const double largest =
            *std::max_element(scores_.begin(), scores_.begin() + static_cast<std::ptrdiff_t>(visible_));
        double total = 0;
        for (std::size_t k = 0; k < visible_; ++k) total += std::exp(scores_[k] - largest);
        return largest + std::log(total);
    }

    // `tensor` counts the views of an AttentionCall.
    float* query_row(std::size_t tensor, std::int64_t row, std::int64_t head) const {
        return floats(at_[tensor]) + (row * shape_.heads + head) * shape_.head_dim;
    }
    std::size_t key_place(std::size_t row, std::int64_t head) const {
        return (row * static_cast<std::size_t>(shape_.kv_heads) + static_cast<std::size_t>(head / group_)) * width_;
    }
    const float* key_row(std::size_t tensor, std::size_t row, std::int64_t head) const {
        return floats(at_[tensor]) + key_place(row, head);
    }
    double dot(const float* a, const float* b) const {
        double sum = 0;
        for (std::size_t i = 0; i < width_; ++i) sum += static_cast<double>(a[i]) * static_cast<double>(b[i]);
        return sum;
    }
    void add(double factor, const float* row) {
        for (std::size_t i = 0; i < width_; ++i) sum_[i] += factor * static_cast<double>(row[i]);
    }
    void write_sum(float* row) const {
        for (std::size_t i = 0; i < width_; ++i) row[i] = static_cast<float>(sum_[i]);
    }

    const Attention& shape_;
    const Addresses& at_;
    std::int64_t group_;
    std::size_t width_;
    double scale_;
    std::vector<double> scores_;
    std::vector<double> sum_;
    std::size_t visible_ = 0;  ///< keys of the row
};

}  // namespace

void HostDevice::compute(Stream, const AttentionCall&, const Attention& shape, const Addresses& at) {
    AttentionRows rows(shape, at);
    if (shape.backward) {
        rows.backward();
    } else {
        rows.forward();
    }
}

}  // namespace headroom
