// SPDX-License-Identifier: Apache-2.0
// Memory, products and what moves or adds elements. Attention, layers and communication have files of their own.
#include "calibrate/host_device.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>

#include "calibrate/host_values.hpp"

namespace headroom {
namespace {

constexpr std::int64_t largest_tensor = 4 << 20;

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

void move_bytes(std::byte* to, const std::byte* from, std::int64_t bytes) {
    if (bytes > 0) std::memcpy(to, from, static_cast<std::size_t>(bytes));
}

}  // namespace

double rotary_angle(std::int64_t position, int pair, int head_dim) {
    return static_cast<double>(position) * std::pow(10000.0, -2.0 * pair / head_dim);
}

std::vector<float> rotary_table(const std::vector<std::int64_t>& positions, int head_dim) {
    std::vector<float> table;
    table.reserve(positions.size() * static_cast<std::size_t>(head_dim));
    for (const std::int64_t position : positions) {
        for (int pair = 0; pair < head_dim / 2; ++pair) {
            const double angle = rotary_angle(position, pair, head_dim);
            table.push_back(static_cast<float>(std::cos(angle)));
            table.push_back(static_cast<float>(std::sin(angle)));
        }
    }
    return table;
}

std::byte* HostDevice::allocate(const char*, std::int64_t bytes, Place, Stream) {
    // Not a number until written: what nobody wrote does not pass for a result. Workspaces, which nothing here uses,
    // are larger than any tensor of a check.
    auto* data = new double[static_cast<std::size_t>((bytes + 7) / 8)];
    std::memset(data, 0xff, static_cast<std::size_t>(std::min(bytes, largest_tensor)));
    return reinterpret_cast<std::byte*>(data);
}

void HostDevice::release(std::byte* address, Place, Stream) { delete[] doubles(address); }

void HostDevice::upload(std::byte* to, std::span<const float> values) { upload_bytes(to, std::as_bytes(values)); }

void HostDevice::download(std::span<float> values, const std::byte* from) {
    download_bytes(std::as_writable_bytes(values), from);
}

void HostDevice::upload_bytes(std::byte* to, std::span<const std::byte> bytes) {
    std::copy(bytes.begin(), bytes.end(), to);
}

void HostDevice::download_bytes(std::span<std::byte> bytes, const std::byte* from) {
    std::copy_n(from, bytes.size(), bytes.begin());
}

double HostDevice::take_loss() { return std::exchange(loss_, 0.0); }

void HostDevice::compute(Stream, const Product& what, const Addresses& at) {
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

void HostDevice::compute(Stream, const Rotary& what, const Addresses& at) {
    const std::int64_t pairs = what.head_dim / 2;
    for (std::int64_t block = 0; block < what.blocks; ++block) {
        for (std::int64_t row = 0; row < what.rows; ++row) {
            const float* table = floats(at[1]) + row * what.head_dim;
            float* values = floats(at[0]) + (block * what.rows + row) * what.width;
            for (std::int64_t pair = 0; pair < what.width / 2; ++pair) {
                const auto cosine = static_cast<double>(table[2 * (pair % pairs)]);
                const double sine = (what.back ? -1 : 1) * static_cast<double>(table[2 * (pair % pairs) + 1]);
                const auto x = static_cast<double>(values[2 * pair]);
                const auto y = static_cast<double>(values[2 * pair + 1]);
                values[2 * pair] = static_cast<float>(x * cosine - y * sine);
                values[2 * pair + 1] = static_cast<float>(x * sine + y * cosine);
            }
        }
    }
}

void HostDevice::compute(Stream, const Transfer& what, const Addresses& at) {
    for (std::size_t i = 0; i < what.moves.size(); ++i) move_bytes(at[2 * i + 1], at[2 * i], what.moves[i].bytes);
}

void HostDevice::compute(Stream, const Convert& what, const Addresses& at) {
    for (std::int64_t i = 0; i < what.elements; ++i) {
        if (what.widen) {
            doubles(at[1])[i] = static_cast<double>(floats(at[0])[i]);
        } else {
            floats(at[1])[i] = static_cast<float>(doubles(at[0])[i]);
        }
    }
}

void HostDevice::compute(Stream, const AddTo& what, const Addresses& at) {
    for (std::int64_t i = 0; i < what.elements; ++i) {
        if (what.wide_sum) {
            doubles(at[0])[i] += static_cast<double>(floats(at[1])[i]);
        } else {
            floats(at[0])[i] += floats(at[1])[i];
        }
    }
}

void HostDevice::compute(Stream, const Merge& what, const Addresses& at) {
    for (std::int64_t row = 0; row < what.rows; ++row) {
        for (std::int64_t head = 0; head < what.heads; ++head) {
            const std::int64_t total_row = what.first_row + row;
            float& exponent = floats(at[1])[head * what.total_rows + total_row];
            const double block_exponent = static_cast<double>(floats(at[3])[head * what.rows + row]);
            double* sum = doubles(at[0]) + (total_row * what.heads + head) * what.head_dim;
            const float* block = floats(at[2]) + (row * what.heads + head) * what.head_dim;
            if (what.first) {
                for (int i = 0; i < what.head_dim; ++i) sum[i] = static_cast<double>(block[i]);
                exponent = static_cast<float>(block_exponent);
                continue;
            }
            const double before = static_cast<double>(exponent);
            const double larger = std::max(before, block_exponent);
            const double merged = larger + std::log(std::exp(before - larger) + std::exp(block_exponent - larger));
            const double keep = std::exp(before - merged);
            const double take = std::exp(block_exponent - merged);
            for (int i = 0; i < what.head_dim; ++i) sum[i] = keep * sum[i] + take * static_cast<double>(block[i]);
            exponent = static_cast<float>(merged);
        }
    }
}

void HostDevice::compute(Stream, const SliceExponent& what, const Addresses& at) {
    for (std::int64_t head = 0; head < what.heads; ++head) {
        std::copy_n(floats(at[0]) + head * what.total_rows + what.first_row, what.rows,
                    floats(at[1]) + head * what.rows);
    }
}

void HostDevice::compute(Stream, const Sum& what, const Addresses& at) {
    for (std::int64_t i = 0; i < what.elements; ++i) floats(at[2])[i] = floats(at[0])[i] + floats(at[1])[i];
}

// Narrow elements are fp32 here already.
void HostDevice::compute(Stream, const CopyIn& what, const Addresses& at) {
    std::copy_n(floats(at[0]), what.elements, floats(at[1]));
}

}  // namespace headroom
