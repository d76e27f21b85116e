// SPDX-License-Identifier: Apache-2.0
#include "calibrate/cuda/attention_probe.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <functional>
#include <thread>

#include "calibrate/attention_limits.hpp"
#include "calibrate/cuda/attention.hpp"
#include "calibrate/cuda/errors.hpp"
#include "calibrate/cuda/samples.hpp"
#include "calibrate/cuda/stream_measurement.hpp"

namespace headroom {
namespace {

/// A bf16 as its bits: heads stay as they come, a million tokens as floats would mean as many page faults again.
using Half = std::uint16_t;
float value(Half bits) { return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16); }

/// One head of a [tokens, heads, head_dim] tensor on the host.
struct Head {
    std::vector<Half> values;
    std::int64_t head_dim;
    const Half* row(std::int64_t token) const { return &values[static_cast<std::size_t>(token * head_dim)]; }
};

Head download_head(const bf16* data, std::int64_t tokens, std::int64_t heads, std::int64_t head,
                   std::int64_t head_dim) {
    Head result{std::vector<Half>(static_cast<std::size_t>(tokens * head_dim)), head_dim};
    const auto width = static_cast<std::size_t>(head_dim) * 2;
    // Gathered on the device first: rows of a few hundred bytes cross the bus slowly.
    const DeviceBuffer gathered(tokens * head_dim * 2);
    check_cuda(cudaMemcpy2D(gathered.as(), width, data + head * head_dim, static_cast<std::size_t>(heads) * width,
                            width, static_cast<std::size_t>(tokens), cudaMemcpyDeviceToDevice),
               "cudaMemcpy2D");
    check_cuda(cudaMemcpy(result.values.data(), gathered.as(), result.values.size() * 2, cudaMemcpyDeviceToHost),
               "cudaMemcpy");
    return result;
}

/// head_dim is a multiple of 8: eight sums side by side, which the compiler turns into vectors.
double dot(const Half* a, const Half* b, std::int64_t count) {
    double sums[8] = {};
    for (std::int64_t i = 0; i < count; i += 8) {
        for (int k = 0; k < 8; ++k) {
            sums[k] += static_cast<double>(value(a[i + k])) * static_cast<double>(value(b[i + k]));
        }
    }
    return ((sums[0] + sums[1]) + (sums[2] + sums[3])) + ((sums[4] + sums[5]) + (sums[6] + sums[7]));
}

void add_scaled(std::vector<double>& sum, double factor, const Half* row) {
    for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += factor * static_cast<double>(value(row[i]));
}

/// The parts of a sum over [0, count), a thread each, added in their order.
using Sums = std::vector<std::vector<double>>;
Sums sum_in_threads(std::int64_t count, const Sums& zero,
                    const std::function<void(std::int64_t first, std::int64_t last, Sums& sums)>& part) {
    const auto threads = static_cast<std::int64_t>(std::clamp(std::thread::hardware_concurrency(), 1U, 16U));
    const std::int64_t each = (count + threads - 1) / threads;
    std::vector<Sums> parts(static_cast<std::size_t>(threads), zero);
    std::vector<std::thread> running;
    for (std::int64_t i = 0; i < threads; ++i) {
        running.emplace_back([&, i] {
            part(std::min(i * each, count), std::min((i + 1) * each, count), parts[static_cast<std::size_t>(i)]);
        });
    }
    for (std::thread& thread : running) thread.join();
    Sums all = zero;
    for (const Sums& one : parts) {
        for (std::size_t row = 0; row < all.size(); ++row) {
            for (std::size_t i = 0; i < all[row].size(); ++i) all[row][i] += one[row][i];
        }
    }
    return all;
}

class CudnnWork : public AttentionWork {
 public:
    CudnnWork(cudaStream_t stream, const Attention& shape) : a_(shape), stream_(stream), handle_(stream) {
        const std::int64_t query = a_.query_len * a_.heads * a_.head_dim, key = a_.key_len * a_.kv_heads * a_.head_dim;
        std::uint64_t seed = 0;
        const auto make = [&](std::int64_t elements) {
            DeviceBuffer buffer(2 * elements);
            fill_normal(stream_, buffer.as<bf16>(), elements, ++seed);
            return buffer;
        };
        query_ = make(query);
        key_ = make(key);
        value_ = make(key);
        out_ = make(query);
        exponent_ = DeviceBuffer(4 * a_.heads * a_.query_len);
        Attention forward = a_;
        forward.backward = false;
        plan_ = make_plan(forward);
        bind(*plan_, forward);
        plan_->execute();
        if (a_.backward) {
            out_gradient_ = make(query);
            query_gradient_ = make(query);
            key_gradient_ = make(key);
            value_gradient_ = make(key);
            check_cuda(cudaStreamSynchronize(stream_), "cudaStreamSynchronize");
            plan_ = make_plan(a_);
            bind(*plan_, a_);
        }
        synchronize();
    }

    void execute() override { plan_->execute(); }

    Check verify() override {
        execute();
        synchronize();
        const std::int32_t head = a_.heads - 1, kv = a_.kv_heads - 1;  // the end of every tensor
        const Head keys = download_head(key_.as<bf16>(), a_.key_len, a_.kv_heads, kv, a_.head_dim);
        const Head values = download_head(value_.as<bf16>(), a_.key_len, a_.kv_heads, kv, a_.head_dim);
        double worst = 0;
        const auto keep = [&](double error) { worst = error <= worst ? worst : error; };  // keeps what is no number
        ErrorSum outs, exponents, query_gradients;
        for (const std::int64_t row : {std::int64_t{5}, a_.query_len / 2 + 3, a_.query_len - 1}) {
            check_query(head, row, keys, values, outs, exponents, query_gradients);
        }
        keep(outs.relative());
        keep(exponents.relative());
        if (a_.backward) {
            keep(query_gradients.relative());
            ErrorSum key_gradients, value_gradients;
            check_keys(kv, keys, values, key_gradients, value_gradients);
            keep(key_gradients.relative());
            keep(value_gradients.relative());
        }
        return {worst, 1e-2, true};
    }

    Json notes() override {
        return {{"shared_memory_bytes", plan_->shared_memory()}, {"workspace_bytes", plan_->workspace_bytes()}};
    }

 private:
    void synchronize() const { check_cuda(cudaStreamSynchronize(stream_), "cudaStreamSynchronize"); }

    std::unique_ptr<AttentionPlan> make_plan(const Attention& shape) {
        const AttentionStrides strides{std::int64_t{a_.heads} * a_.head_dim, std::int64_t{a_.kv_heads} * a_.head_dim};
        auto plan = std::make_unique<AttentionPlan>(handle_.get(), shape, strides);
        if (shape.head_dim == 128 && plan->shared_memory() < hopper_shared_memory) {
            throw Error("cuDNN chose an engine that is not the Hopper one", "", "install the cuDNN of the record",
                        ExitCode::failure);
        }
        return plan;
    }

    /// Backward's needs cover forward's, which has been bound to a smaller one before and is not run again.
    void bind(AttentionPlan& plan, const Attention& shape) {
        if (workspace_.bytes() < plan.workspace_bytes()) workspace_ = DeviceBuffer(plan.workspace_bytes());
        if (shape.backward) {
            accumulator_ = DeviceBuffer(4 * a_.query_len * std::int64_t{a_.heads} * a_.head_dim);
            delta_ = DeviceBuffer(4 * a_.query_len * std::int64_t{a_.heads});
        }
        const auto at = [](const DeviceBuffer& buffer) { return buffer.bytes() == 0 ? nullptr : buffer.as<bf16>(); };
        plan.bind(
            {at(query_), at(key_), at(value_), at(out_), exponent_.as<float>(), at(out_gradient_), at(query_gradient_),
             at(key_gradient_), at(value_gradient_), accumulator_.as<float>(), delta_.as<float>()},
            workspace_.as());
    }

    double scale() const { return 1 / std::sqrt(static_cast<double>(a_.head_dim)); }
    std::vector<double> row_of(const DeviceBuffer& tensor, std::int64_t heads, std::int64_t head,
                               std::int64_t row) const {
        return download(tensor.as<bf16>() + (row * heads + head) * a_.head_dim, a_.head_dim);
    }

    /// Of a tensor with a head for each query head.
    std::vector<Half> bits_of(const DeviceBuffer& tensor, std::int64_t head, std::int64_t row) const {
        std::vector<Half> bits(static_cast<std::size_t>(a_.head_dim));
        check_cuda(cudaMemcpy(bits.data(), tensor.as<bf16>() + (row * a_.heads + head) * a_.head_dim, bits.size() * 2,
                              cudaMemcpyDeviceToHost),
                   "cudaMemcpy");
        return bits;
    }

    void check_query(std::int32_t head, std::int64_t row, const Head& keys, const Head& values, ErrorSum& outs,
                     ErrorSum& exponents, ErrorSum& query_gradients) const {
        const std::vector<Half> query = bits_of(query_, head, row);
        const std::int64_t seen = a_.causal ? std::min(row + 1, a_.key_len) : a_.key_len;
        std::vector<double> scores(static_cast<std::size_t>(seen));
        sum_in_threads(seen, {}, [&](std::int64_t first, std::int64_t last, Sums&) {
            for (std::int64_t j = first; j < last; ++j) {
                scores[static_cast<std::size_t>(j)] = scale() * dot(query.data(), keys.row(j), a_.head_dim);
            }
        });
        const double top = *std::max_element(scores.begin(), scores.end());
        double mass = 0;
        for (const double score : scores) mass += std::exp(score - top);
        const double exponent = top + std::log(mass);
        const Sums zero(1, std::vector<double>(static_cast<std::size_t>(a_.head_dim)));
        const auto expected = sum_in_threads(seen, zero, [&](std::int64_t first, std::int64_t last, Sums& sums) {
            for (std::int64_t j = first; j < last; ++j) {
                add_scaled(sums[0], std::exp(scores[static_cast<std::size_t>(j)] - exponent), values.row(j));
            }
        });
        const std::vector<double> out = row_of(out_, a_.heads, head, row);
        outs.add(out, expected[0]);
        exponents.add(download(exponent_.as<float>() + head * a_.query_len + row, 1), {exponent});
        if (!a_.backward) return;
        const std::vector<Half> upstream = bits_of(out_gradient_, head, row);
        const std::vector<Half> rounded = bits_of(out_, head, row);
        const double delta = dot(rounded.data(), upstream.data(), a_.head_dim);
        const auto gradient = sum_in_threads(seen, zero, [&](std::int64_t first, std::int64_t last, Sums& sums) {
            for (std::int64_t j = first; j < last; ++j) {
                const double probability = std::exp(scores[static_cast<std::size_t>(j)] - exponent);
                const double slope = probability * (dot(upstream.data(), values.row(j), a_.head_dim) - delta) * scale();
                add_scaled(sums[0], slope, keys.row(j));
            }
        });
        query_gradients.add(row_of(query_gradient_, a_.heads, head, row), gradient[0]);
    }

    /// dK and dV of an early and a late key, over all queries and heads that see it.
    void check_keys(std::int32_t kv, const Head& keys, const Head& values, ErrorSum& key_gradients,
                    ErrorSum& value_gradients) const {
        const std::int64_t rows[]{3, a_.key_len - 5};
        const Sums zero(4, std::vector<double>(static_cast<std::size_t>(a_.head_dim)));  // dK and dV of both rows
        Sums total = zero;
        const std::int32_t group = a_.heads / a_.kv_heads;
        for (std::int32_t head = kv * group; head < (kv + 1) * group; ++head) {
            const Head queries = download_head(query_.as<bf16>(), a_.query_len, a_.heads, head, a_.head_dim);
            const Head upstreams = download_head(out_gradient_.as<bf16>(), a_.query_len, a_.heads, head, a_.head_dim);
            const Head outs = download_head(out_.as<bf16>(), a_.query_len, a_.heads, head, a_.head_dim);
            const std::vector<double> exponent = download(exponent_.as<float>() + head * a_.query_len, a_.query_len);
            const Sums of_head =
                sum_in_threads(a_.query_len, zero, [&](std::int64_t first, std::int64_t last, Sums& sums) {
                    for (std::int64_t i = first; i < last; ++i) {
                        const double delta = dot(outs.row(i), upstreams.row(i), a_.head_dim);
                        for (std::size_t which = 0; which < 2; ++which) {
                            const std::int64_t j = rows[which];
                            if (a_.causal && i < j) continue;
                            const double score = scale() * dot(queries.row(i), keys.row(j), a_.head_dim);
                            const double probability = std::exp(score - exponent[static_cast<std::size_t>(i)]);
                            const double slope =
                                probability * (dot(upstreams.row(i), values.row(j), a_.head_dim) - delta) * scale();
                            add_scaled(sums[which], slope, queries.row(i));
                            add_scaled(sums[2 + which], probability, upstreams.row(i));
                        }
                    }
                });
            for (std::size_t row = 0; row < total.size(); ++row) {
                for (std::size_t i = 0; i < total[row].size(); ++i) total[row][i] += of_head[row][i];
            }
        }
        for (std::size_t which = 0; which < 2; ++which) {
            key_gradients.add(row_of(key_gradient_, a_.kv_heads, kv, rows[which]), total[which]);
            value_gradients.add(row_of(value_gradient_, a_.kv_heads, kv, rows[which]), total[2 + which]);
        }
    }

    Attention a_;
    cudaStream_t stream_;
    CudnnHandle handle_;
    DeviceBuffer query_, key_, value_, out_, exponent_, out_gradient_, query_gradient_, key_gradient_, value_gradient_,
        accumulator_, delta_, workspace_;
    std::unique_ptr<AttentionPlan> plan_;
};

class AttentionMeasurement : public StreamMeasurement {
 public:
    explicit AttentionMeasurement(const Attention& shape)
        : StreamMeasurement(shape.backward ? 8 : 2), work_(make_attention_work(stream(), shape)) {}
    Check verify() override { return work_->verify(); }
    Json notes() override { return work_->notes(); }

 protected:
    void enqueue(cudaStream_t) override { work_->execute(); }

 private:
    std::unique_ptr<AttentionWork> work_;
};

}  // namespace

std::unique_ptr<AttentionWork> make_attention_work(cudaStream_t stream, const Attention& shape) {
    return std::make_unique<CudnnWork>(stream, shape);
}

std::unique_ptr<PreparedProbe> prepare_attention(const AttentionProbe& probe) {
    return std::make_unique<AttentionMeasurement>(probe.shape);
}

std::string cudnn_loaded_version() { return cudnn_version_text(static_cast<std::int64_t>(cudnnGetVersion())); }

}  // namespace headroom
