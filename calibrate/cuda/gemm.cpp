// SPDX-License-Identifier: Apache-2.0
#include "calibrate/cuda/gemm.hpp"

#include <fmt/format.h>

#include "calibrate/cuda/errors.hpp"
#include "calibrate/cuda/product.hpp"
#include "calibrate/cuda/samples.hpp"
#include "calibrate/cuda/stream_measurement.hpp"

namespace headroom {
namespace {

/// Y[m,n] = X[m,k] W[n,k]^T, all row-major bf16, sums in fp32: the forward product of a linear layer.
class GemmMeasurement : public StreamMeasurement {
 public:
    explicit GemmMeasurement(const GemmProbe& probe)
        : StreamMeasurement(1),
          probe_(probe),
          product_{
              probe.m,   probe.n, probe.k, 1, {{}, probe.k, 0, false}, {{}, probe.k, 0, true}, {{}, probe.n, 0, false},
              probe.adds},
          x_(2 * probe.m * probe.k),
          w_(2 * probe.n * probe.k),
          y_(2 * probe.m * probe.n) {
        fill_normal(stream(), x_.as<bf16>(), probe.m * probe.k, 1);
        fill_normal(stream(), w_.as<bf16>(), probe.n * probe.k, 2);
        enqueue(stream());  // plan and workspace exist from here on
        synchronize();
    }
    Check verify() override {
        check_cuda(cudaMemsetAsync(y_.as(), 0, static_cast<std::size_t>(y_.bytes()), stream()), "cudaMemsetAsync");
        enqueue(stream());
        synchronize();
        ErrorSum error;
        for (const std::int64_t row : {std::int64_t{0}, probe_.m / 2, probe_.m - 1}) {
            const std::vector<double> x = download(x_.as<bf16>() + row * probe_.k, probe_.k);
            std::vector<double> result, expected;
            for (std::int64_t step = 0; step < 16; ++step) {
                const std::int64_t column = step * (probe_.n - 1) / 15;
                const std::vector<double> w = download(w_.as<bf16>() + column * probe_.k, probe_.k);
                double sum = 0;
                for (std::size_t i = 0; i < x.size(); ++i) sum += x[i] * w[i];
                expected.push_back(sum);
                result.push_back(download(y_.as<bf16>() + row * probe_.n + column, 1).front());
            }
            error.add(result, expected);
        }
        return {error.relative(), 1e-2, true};
    }

 protected:
    void enqueue(cudaStream_t stream) override { products_.run(stream, product_, x_.as(), w_.as(), y_.as()); }

 private:
    GemmProbe probe_;
    Product product_;
    DeviceBuffer x_, w_, y_;
    Products products_;
};

}  // namespace

std::unique_ptr<PreparedProbe> prepare_gemm(const GemmProbe& probe) { return std::make_unique<GemmMeasurement>(probe); }

std::string cublas_version_text() {
    const std::size_t version = cublasLtGetVersion();  // 130100
    return fmt::format("{}.{}.{}", version / 10000, version / 100 % 100, version % 100);
}

}  // namespace headroom
