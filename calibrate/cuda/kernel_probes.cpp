// SPDX-License-Identifier: Apache-2.0
#include "calibrate/cuda/kernel_probes.hpp"

#include <bit>
#include <cmath>
#include <numbers>

#include "calibrate/cuda/errors.hpp"
#include "calibrate/cuda/samples.hpp"
#include "calibrate/cuda/schedule_kernels.hpp"
#include "calibrate/cuda/stream_measurement.hpp"

namespace headroom {
namespace {

using Values = std::vector<double>;
constexpr int head_dim = 128;
constexpr int exchange_ranks = 8;                   // of the all-to-all that head_pack prepares
constexpr double bf16_limit = 8e-3;                 // two roundings to bf16, relative L2
constexpr std::int64_t checked_rows[]{0, 1, 4097};  // and the last one

std::int64_t bf16_bytes(std::int64_t elements) { return 2 * elements; }

/// Tensors a probe may use: three in bf16 and two in fp32, of [rows, columns], made when first asked for.
class Tensors {
 public:
    Tensors(cudaStream_t stream, Shape shape) : stream_(stream), shape_(shape) {}
    bf16* half(std::size_t i) { return get<bf16>(half_, i, shape_.elements()); }
    float* full(std::size_t i) { return get<float>(full_, i, shape_.elements()); }
    /// fp32, one for each row and head; log-sum-exps, losses, scales.
    float* small(std::size_t i) { return get<float>(small_, i, shape_.rows * (shape_.columns / head_dim)); }

 private:
    template <class Element>
    Element* get(std::vector<DeviceBuffer>& buffers, std::size_t i, std::int64_t elements) {
        if (buffers.size() <= i) buffers.resize(i + 1);
        if (buffers[i].bytes() == 0) {
            buffers[i] = DeviceBuffer(elements * static_cast<std::int64_t>(sizeof(Element)));
            fill_normal(stream_, buffers[i].as<Element>(), elements, ++seed_);
        }
        return buffers[i].as<Element>();
    }
    cudaStream_t stream_;
    Shape shape_;
    std::uint64_t seed_ = 0;
    std::vector<DeviceBuffer> half_, full_, small_;
};

double sigmoid(double x) { return 1 / (1 + std::exp(-x)); }

class KernelMeasurement : public StreamMeasurement {
 public:
    KernelMeasurement(const DeviceKernelProbe& probe, int launches)
        : StreamMeasurement(launches), kernel_(probe.kernel), shape_{probe.rows, probe.columns}, t_(stream(), shape_) {
        if (needs_table()) make_table();
        if (kernel_ == DeviceKernel::norm_backward) {
            partial_ = DeviceBuffer(norm_backward_scratch_bytes(shape_.columns));
            weight_gradient_ = DeviceBuffer(bf16_bytes(shape_.columns));
        }
        if (kernel_ == DeviceKernel::norm_forward || kernel_ == DeviceKernel::norm_backward) {
            weight_ = DeviceBuffer(bf16_bytes(shape_.columns));
            fill_normal(stream(), weight_.as<bf16>(), shape_.columns, 99);
        }
        if (kernel_ == DeviceKernel::norm_backward) {  // 1/rms, for the reference alone
            norm_forward(stream(), t_.half(0), weight_.as<bf16>(), t_.half(1), t_.small(0), shape_);
        }
        if (kernel_ == DeviceKernel::cross_entropy) make_labels();
        enqueue(stream());  // all tensors exist from here on
        synchronize();
    }

    Check verify() override {
        ErrorSum error;
        for (const std::int64_t row : checked_rows) check_row(row % shape_.rows, error);
        check_row(shape_.rows - 1, error);
        if (kernel_ == DeviceKernel::norm_backward) check_weight_gradient();
        const bool exact = is_permutation() || kernel_ == DeviceKernel::cast_up || kernel_ == DeviceKernel::copy;
        const double second = second_.relative();
        return {second <= error.relative() ? error.relative() : second, exact ? 0 : bf16_limit, true};
    }

 protected:
    void enqueue(cudaStream_t stream) override {
        const std::int64_t elements = shape_.elements();
        switch (kernel_) {
            case DeviceKernel::copy:
                check_cuda(cudaMemcpyAsync(t_.half(1), t_.half(0), static_cast<std::size_t>(bf16_bytes(elements)),
                                           cudaMemcpyDeviceToDevice, stream),
                           "cudaMemcpyAsync");
                break;
            case DeviceKernel::eager_add:
                add(stream, t_.half(0), t_.half(1), t_.half(2), elements);
                break;
            case DeviceKernel::cast_up:
                cast_up(stream, t_.half(0), t_.full(0), elements);
                break;
            case DeviceKernel::cast_down:
                cast_down(stream, t_.full(0), t_.half(0), elements);
                break;
            case DeviceKernel::complex_rotary:
                cast_up(stream, t_.half(0), t_.full(0), elements);
                complex_multiply(stream, t_.full(0), table_.as<float2>(), t_.full(1), shape_, head_dim);
                cast_down(stream, t_.full(1), t_.half(1), elements);
                break;
            case DeviceKernel::mixed_add:
                mixed_add(stream, t_.half(0), t_.full(0), elements);
                break;
            case DeviceKernel::mixed_add_wide:
                mixed_add(stream, t_.full(0), t_.half(0), elements);
                break;
            case DeviceKernel::transpose:
            case DeviceKernel::head_pack:
            case DeviceKernel::head_unpack:
                swap_axes(stream, t_.half(0), t_.half(1), outer(), inner(), elements / (outer() * inner()));
                break;
            case DeviceKernel::rotary:
                rotary(stream, t_.half(0), table_.as<float2>(), shape_, head_dim, false);
                break;
            case DeviceKernel::norm_forward:
                norm_forward(stream, t_.half(0), weight_.as<bf16>(), t_.half(1), t_.small(0), shape_);
                break;
            case DeviceKernel::norm_backward:
                norm_backward(stream, t_.half(0), weight_.as<bf16>(), t_.half(1), t_.half(2), partial_.as<float>(),
                              weight_gradient_.as<bf16>(), shape_);
                break;
            case DeviceKernel::swiglu_forward:
                swiglu_forward(stream, t_.half(0), t_.half(1), t_.half(2), elements);
                break;
            case DeviceKernel::swiglu_backward:
                swiglu_backward(stream, t_.half(0), t_.half(1), t_.half(2), t_.half(3), t_.half(4), elements);
                break;
            case DeviceKernel::merge:
                merge_rows(stream, merge_of_all(), t_.full(0), t_.small(0), t_.half(0), t_.small(1));
                break;
            case DeviceKernel::cross_entropy:
                cross_entropy(stream, t_.half(0), labels_.as<std::int64_t>(), t_.small(0), shape_, 1.0F);
                break;
        }
    }

 private:
    bool needs_table() const { return kernel_ == DeviceKernel::complex_rotary || kernel_ == DeviceKernel::rotary; }
    bool is_permutation() const {
        return kernel_ == DeviceKernel::transpose || kernel_ == DeviceKernel::head_pack ||
               kernel_ == DeviceKernel::head_unpack;
    }
    // [outer, inner, ...] to [inner, outer, ...]
    std::int64_t outer() const { return kernel_ == DeviceKernel::head_unpack ? exchange_ranks : shape_.rows; }
    std::int64_t inner() const {
        if (kernel_ == DeviceKernel::head_unpack) return shape_.rows;
        return kernel_ == DeviceKernel::head_pack ? exchange_ranks : shape_.columns / head_dim;
    }

    Merge merge_of_all() const {
        Merge merge{};
        merge.rows = merge.total_rows = shape_.rows;
        merge.heads = static_cast<std::int32_t>(shape_.columns / head_dim);
        merge.head_dim = head_dim;
        return merge;
    }

    void make_table() {
        // Row r turns pair i by r * 500000^(-2i/d), Llama 3's angles; the reference reads the same table.
        constexpr std::int64_t pairs = head_dim / 2;
        std::vector<float2> table(static_cast<std::size_t>(shape_.rows * pairs));
        for (std::int64_t row = 0; row < shape_.rows; ++row) {
            for (std::int64_t i = 0; i < pairs; ++i) {
                const double angle = static_cast<double>(row % 8192) *
                                     std::pow(500000.0, -static_cast<double>(i) / static_cast<double>(pairs));
                table[static_cast<std::size_t>(row * pairs + i)] = {static_cast<float>(std::cos(angle)),
                                                                    static_cast<float>(std::sin(angle))};
            }
            if (row == 8191) {  // the rest repeats
                for (std::size_t k = 8192 * pairs; k < table.size(); ++k) table[k] = table[k - 8192 * pairs];
                break;
            }
        }
        table_ = DeviceBuffer(static_cast<std::int64_t>(table.size() * sizeof(float2)));
        check_cuda(cudaMemcpy(table_.as(), table.data(), table.size() * sizeof(float2), cudaMemcpyHostToDevice),
                   "cudaMemcpy");
    }

    void make_labels() {
        std::vector<std::int64_t> labels(static_cast<std::size_t>(shape_.rows));
        for (std::size_t i = 0; i < labels.size(); ++i) {
            labels[i] = static_cast<std::int64_t>(i) * 7919 % shape_.columns;
        }
        labels_ = DeviceBuffer(8 * shape_.rows);
        check_cuda(cudaMemcpy(labels_.as(), labels.data(), labels.size() * 8, cudaMemcpyHostToDevice), "cudaMemcpy");
    }

    Values half_row(std::size_t i, std::int64_t row) {
        return download(t_.half(i) + row * shape_.columns, shape_.columns);
    }
    Values full_row(std::size_t i, std::int64_t row) {
        return download(t_.full(i) + row * shape_.columns, shape_.columns);
    }
    Values exponents(std::size_t i, std::int64_t row) {
        Values values;
        for (std::int64_t head = 0; head < shape_.columns / head_dim; ++head) {
            values.push_back(download(t_.small(i) + head * shape_.rows + row, 1).front());
        }
        return values;
    }

    Values turned(const Values& in, std::int64_t row) const {
        const Values table = download(table_.as<float>() + row * head_dim, head_dim);
        Values out(in.size());
        for (std::size_t i = 0; i + 1 < in.size(); i += 2) {
            const std::size_t pair = i % head_dim;
            out[i] = in[i] * table[pair] - in[i + 1] * table[pair + 1];
            out[i + 1] = in[i] * table[pair + 1] + in[i + 1] * table[pair];
        }
        return out;
    }

    /// Runs the kernel once more and compares one row of what it wrote; in-place kernels have their input read before.
    void check_row(std::int64_t row, ErrorSum& error) {
        const auto again = [&] {
            enqueue(stream());
            synchronize();
        };
        const auto columns = static_cast<std::size_t>(shape_.columns);
        Values expected(columns);
        switch (kernel_) {
            case DeviceKernel::copy:
                again();
                error.add(half_row(1, row), half_row(0, row));
                return;
            case DeviceKernel::cast_up:
                again();
                error.add(full_row(0, row), half_row(0, row));
                return;
            case DeviceKernel::cast_down:
                again();
                error.add(half_row(0, row), full_row(0, row));
                return;
            case DeviceKernel::eager_add: {
                again();
                const Values a = half_row(0, row), b = half_row(1, row);
                for (std::size_t i = 0; i < columns; ++i) expected[i] = a[i] + b[i];
                error.add(half_row(2, row), expected);
                return;
            }
            case DeviceKernel::complex_rotary:
                again();
                error.add(half_row(1, row), turned(half_row(0, row), row));
                return;
            case DeviceKernel::rotary: {
                const Values before = half_row(0, row);
                again();
                error.add(half_row(0, row), turned(before, row));
                return;
            }
            case DeviceKernel::mixed_add: {
                const Values a = half_row(0, row), b = full_row(0, row);
                again();
                for (std::size_t i = 0; i < columns; ++i) expected[i] = a[i] + b[i];
                error.add(half_row(0, row), expected);
                return;
            }
            case DeviceKernel::mixed_add_wide: {
                const Values a = full_row(0, row), b = half_row(0, row);
                again();
                for (std::size_t i = 0; i < columns; ++i) expected[i] = a[i] + b[i];
                error.add(full_row(0, row), expected);
                return;
            }
            case DeviceKernel::transpose:
            case DeviceKernel::head_pack:
            case DeviceKernel::head_unpack: {
                again();
                const std::int64_t piece = shape_.elements() / (outer() * inner());
                for (std::int64_t i = 0; i < std::min<std::int64_t>(inner(), 64); ++i) {
                    const std::int64_t o = row % outer();
                    error.add(download(t_.half(1) + (i * outer() + o) * piece, piece),
                              download(t_.half(0) + (o * inner() + i) * piece, piece));
                }
                return;
            }
            case DeviceKernel::norm_forward: {
                again();
                const Values x = half_row(0, row), w = download(weight_.as<bf16>(), shape_.columns);
                const double scale = norm_scale(x);
                for (std::size_t i = 0; i < columns; ++i) expected[i] = x[i] * scale * w[i];
                error.add(half_row(1, row), expected);
                return;
            }
            case DeviceKernel::norm_backward: {
                again();
                const Values x = half_row(0, row), g = half_row(1, row),
                             w = download(weight_.as<bf16>(), shape_.columns);
                const double scale = norm_scale(x);
                double product = 0;
                for (std::size_t i = 0; i < columns; ++i) product += g[i] * w[i] * x[i] * scale;
                const double mean = product / static_cast<double>(columns);
                for (std::size_t i = 0; i < columns; ++i) {
                    expected[i] = scale * (g[i] * w[i] - x[i] * scale * mean);
                }
                error.add(half_row(2, row), expected);
                return;
            }
            case DeviceKernel::swiglu_forward: {
                again();
                const Values g = half_row(0, row), u = half_row(1, row);
                for (std::size_t i = 0; i < columns; ++i) expected[i] = g[i] * sigmoid(g[i]) * u[i];
                error.add(half_row(2, row), expected);
                return;
            }
            case DeviceKernel::swiglu_backward: {
                again();
                const Values g = half_row(0, row), u = half_row(1, row), d = half_row(2, row);
                Values up(columns);
                for (std::size_t i = 0; i < columns; ++i) {
                    const double s = sigmoid(g[i]);
                    expected[i] = d[i] * u[i] * s * (1 + g[i] * (1 - s));
                    up[i] = d[i] * g[i] * s;
                }
                error.add(half_row(3, row), expected);
                error.add(half_row(4, row), up);
                return;
            }
            case DeviceKernel::merge: {
                const Values sum = full_row(0, row), block = half_row(0, row);
                const Values a = exponents(0, row), b = exponents(1, row);
                again();
                for (std::size_t i = 0; i < columns; ++i) {
                    const std::size_t head = i / head_dim;
                    const double all = std::exp(a[head]) + std::exp(b[head]);
                    expected[i] = (sum[i] * std::exp(a[head]) + block[i] * std::exp(b[head])) / all;
                }
                error.add(full_row(0, row), expected);
                return;
            }
            case DeviceKernel::cross_entropy: {
                const Values x = half_row(0, row);
                again();
                double mass = 0;
                for (const double v : x) mass += std::exp(v);
                for (std::size_t i = 0; i < columns; ++i) expected[i] = std::exp(x[i]) / mass;
                // The label's element is near -1 and would hide the others, which are near 1e-5.
                const std::size_t label = static_cast<std::size_t>(row) * 7919 % columns;
                Values result = half_row(0, row);
                second_.add({result[label], download(t_.small(0) + row, 1).front()},
                            {expected[label] - 1, std::log(mass) - x[label]});
                result[label] = expected[label];
                error.add(result, expected);
                return;
            }
        }
    }

    /// A few columns, over all rows: what the blocks' partial sums come to.
    void check_weight_gradient() {
        constexpr std::size_t width = 4;
        const auto rows = static_cast<std::size_t>(shape_.rows);
        const auto slab = [&](std::size_t tensor, std::int64_t column) {
            std::vector<std::uint16_t> bits(rows * width);
            check_cuda(cudaMemcpy2D(bits.data(), width * 2, t_.half(tensor) + column,
                                    static_cast<std::size_t>(bf16_bytes(shape_.columns)), width * 2, rows,
                                    cudaMemcpyDeviceToHost),
                       "cudaMemcpy2D");
            return bits;
        };
        const auto value = [](std::uint16_t bits) {
            return static_cast<double>(std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16));
        };
        const Values scale = download(t_.small(0), shape_.rows);
        for (const std::int64_t column : {std::int64_t{0}, shape_.columns - static_cast<std::int64_t>(width)}) {
            const std::vector<std::uint16_t> x = slab(0, column), g = slab(1, column);
            Values expected(width);
            for (std::size_t i = 0; i < rows * width; ++i) {
                expected[i % width] += value(g[i]) * value(x[i]) * scale[i / width];
            }
            second_.add(download(weight_gradient_.as<bf16>() + column, static_cast<std::int64_t>(width)), expected);
        }
    }

    static double norm_scale(const Values& x) {
        double squares = 0;
        for (const double v : x) squares += v * v;
        return 1 / std::sqrt(squares / static_cast<double>(x.size()) + 1e-5);
    }

    DeviceKernel kernel_;
    Shape shape_;
    Tensors t_;
    ErrorSum second_;  ///< of what a kernel gives beside its main result
    DeviceBuffer table_, weight_, partial_, weight_gradient_, labels_;
};

}  // namespace

std::unique_ptr<PreparedProbe> prepare_device_kernel(const DeviceKernelProbe& probe) {
    const bool chain = probe.kernel == DeviceKernel::complex_rotary;
    return std::make_unique<KernelMeasurement>(probe, chain ? 3 : 2);
}

}  // namespace headroom
