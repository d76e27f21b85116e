// SPDX-License-Identifier: Apache-2.0
#include "calibrate/host_device.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>

namespace headroom {
namespace {

float* floats(std::byte* address) { return reinterpret_cast<float*>(address); }
double* doubles(std::byte* address) { return reinterpret_cast<double*>(address); }

/// Elements of a matrix in the sense of its product, transposed or not.
struct Operand {
    float* data;
    std::int64_t row_stride, column_stride, batch_stride;

    Operand(const Matrix& matrix, std::byte* address)
        : data(floats(address)),
          row_stride(matrix.transposed ? 1 : matrix.row_stride),
          column_stride(matrix.transposed ? matrix.row_stride : 1),
          batch_stride(matrix.batch_stride) {}
    float& at(std::int64_t batch, std::int64_t row, std::int64_t column) const {
        return data[batch * batch_stride + row * row_stride + column * column_stride];
    }
};

}  // namespace

double rotary_angle(std::int64_t position, int pair, int head_dim) {
    return static_cast<double>(position) * std::pow(10000.0, -2.0 * pair / head_dim);
}

HostRanks::HostRanks(int ulysses, int ring)
    : ulysses_(ulysses), ring_(ring), offered_(static_cast<std::size_t>(ulysses * ring)) {
    for (int i = 0; i < ring; ++i) ulysses_meetings_.push_back(std::make_unique<Meeting>(ulysses));
    for (int i = 0; i < ulysses; ++i) ring_meetings_.push_back(std::make_unique<Meeting>(ring));
}

void HostRanks::give_up() {
    for (const auto& meeting : ulysses_meetings_) meeting->give_up();
    for (const auto& meeting : ring_meetings_) meeting->give_up();
}

HostDevice::HostDevice(HostRanks& ranks, int rank, std::vector<std::int64_t> positions)
    : ranks_(ranks), rank_(rank), positions_(std::move(positions)) {}

std::byte* HostDevice::allocate(const char*, std::int64_t bytes, Place) {
    // Not a number until written: what nobody wrote does not pass for a result.
    auto* data = new double[static_cast<std::size_t>((bytes + 7) / 8)];
    std::memset(data, 0xff, static_cast<std::size_t>(bytes));
    return reinterpret_cast<std::byte*>(data);
}

void HostDevice::release(std::byte* address, Place) { delete[] doubles(address); }

void HostDevice::upload(std::byte* to, std::span<const float> values) {
    std::memcpy(to, values.data(), values.size_bytes());
}

void HostDevice::download(std::span<float> values, const std::byte* from) {
    std::memcpy(values.data(), from, values.size_bytes());
}

void HostDevice::product(Stream, const Product& what, const Addresses& at) {
    const Operand a(what.a, at[0]);
    const Operand b(what.b, at[1]);
    const Operand c(what.c, at[2]);
    for (std::int64_t batch = 0; batch < what.batch; ++batch) {
        const bool adds = what.accumulate || (batch > 0 && what.c.batch_stride == 0);
        for (std::int64_t row = 0; row < what.m; ++row) {
            for (std::int64_t column = 0; column < what.n; ++column) {
                double sum = adds ? static_cast<double>(c.at(batch, row, column)) : 0.0;
                for (std::int64_t k = 0; k < what.k; ++k) {
                    sum += static_cast<double>(a.at(batch, row, k)) * static_cast<double>(b.at(batch, k, column));
                }
                c.at(batch, row, column) = static_cast<float>(sum);
            }
        }
    }
}

void HostDevice::rotary(Stream, const Rotary& what, std::byte* data, int head_dim) {
    for (std::int64_t block = 0; block < what.blocks; ++block) {
        for (std::int64_t row = 0; row < what.rows; ++row) {
            const std::int64_t position =
                what.first_position < 0 ? positions_[static_cast<std::size_t>(row)] : what.first_position + row;
            float* values = floats(data) + (block * what.rows + row) * what.width;
            for (std::int64_t at = 0; at < what.width; at += 2) {
                const double angle = rotary_angle(position, static_cast<int>(at % head_dim / 2), head_dim);
                const double cosine = std::cos(angle);
                const double sine = what.back ? -std::sin(angle) : std::sin(angle);
                const double x = static_cast<double>(values[at]);
                const double y = static_cast<double>(values[at + 1]);
                values[at] = static_cast<float>(x * cosine - y * sine);
                values[at + 1] = static_cast<float>(x * sine + y * cosine);
            }
        }
    }
}

void HostDevice::attention(Stream, const Attention& shape, const Addresses& at) {
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

void HostDevice::convert(Stream, const Convert& what, std::byte* from, std::byte* to) {
    for (std::int64_t i = 0; i < what.elements; ++i) {
        if (what.widen) {
            doubles(to)[i] = static_cast<double>(floats(from)[i]);
        } else {
            floats(to)[i] = static_cast<float>(doubles(from)[i]);
        }
    }
}

void HostDevice::add(Stream, const AddTo& what, std::byte* sum, std::byte* term) {
    for (std::int64_t i = 0; i < what.elements; ++i) {
        if (what.wide_sum) {
            doubles(sum)[i] += static_cast<double>(floats(term)[i]);
        } else {
            floats(sum)[i] += floats(term)[i];
        }
    }
}

void HostDevice::merge(Stream, const Merge& what, const Addresses& at, int head_dim) {
    for (std::int64_t row = 0; row < what.rows; ++row) {
        for (std::int64_t head = 0; head < what.heads; ++head) {
            const std::int64_t total_row = what.first_row + row;
            float& exponent = floats(at[1])[head * what.total_rows + total_row];
            const double block_exponent = static_cast<double>(floats(at[3])[head * what.rows + row]);
            double* sum = doubles(at[0]) + (total_row * what.heads + head) * head_dim;
            const float* block = floats(at[2]) + (row * what.heads + head) * head_dim;
            if (what.first) {
                for (int i = 0; i < head_dim; ++i) sum[i] = static_cast<double>(block[i]);
                exponent = static_cast<float>(block_exponent);
                continue;
            }
            const double before = static_cast<double>(exponent);
            const double larger = std::max(before, block_exponent);
            const double merged = larger + std::log(std::exp(before - larger) + std::exp(block_exponent - larger));
            const double keep = std::exp(before - merged);
            const double take = std::exp(block_exponent - merged);
            for (int i = 0; i < head_dim; ++i) sum[i] = keep * sum[i] + take * static_cast<double>(block[i]);
            exponent = static_cast<float>(merged);
        }
    }
}

void HostDevice::slice(Stream, const SliceExponent& what, std::byte* from, std::byte* to) {
    for (std::int64_t head = 0; head < what.heads; ++head) {
        std::copy_n(floats(from) + head * what.total_rows + what.first_row, what.rows, floats(to) + head * what.rows);
    }
}

void HostDevice::transfer(Stream, std::span<const ByteMove> moves) {
    for (const ByteMove& move : moves) std::memcpy(move.to, move.from, static_cast<std::size_t>(move.bytes));
}

void HostDevice::exchange(Stream, const ByteMove& move) {
    const int ulysses = ranks_.ulysses_;
    const int group = rank_ / ulysses;
    Meeting& meeting = *ranks_.ulysses_meetings_[static_cast<std::size_t>(group)];
    ranks_.offered_[static_cast<std::size_t>(rank_)] = {move};
    meeting.wait();
    const std::int64_t block = move.bytes / ulysses;
    for (int peer = 0; peer < ulysses; ++peer) {
        const ByteMove& sent = ranks_
                                   .offered_[static_cast<std::size_t>(group) * static_cast<std::size_t>(ulysses) +
                                             static_cast<std::size_t>(peer)]
                                   .front();
        std::memcpy(move.to + peer * block, sent.from + rank_ % ulysses * block, static_cast<std::size_t>(block));
    }
    meeting.wait();
}

void HostDevice::pass_on(Stream, std::span<const ByteMove> moves) {
    const int ulysses = ranks_.ulysses_;
    const int ring = ranks_.ring_;
    const int before = (rank_ + (ring - 1) * ulysses) % (ring * ulysses);
    Meeting& meeting = *ranks_.ring_meetings_[static_cast<std::size_t>(rank_ % ulysses)];
    ranks_.offered_[static_cast<std::size_t>(rank_)].assign(moves.begin(), moves.end());
    meeting.wait();
    const std::vector<ByteMove>& sent = ranks_.offered_[static_cast<std::size_t>(before)];
    for (std::size_t i = 0; i < moves.size(); ++i) {
        std::memcpy(moves[i].to, sent[i].from, static_cast<std::size_t>(moves[i].bytes));
    }
    meeting.wait();
}

}  // namespace headroom
