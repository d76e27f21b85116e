// SPDX-License-Identifier: Apache-2.0
#include "calibrate/cuda/gemm.hpp"

#include <cublasLt.h>
#include <fmt/format.h>

#include "calibrate/cuda/errors.hpp"
#include "calibrate/cuda/samples.hpp"
#include "calibrate/cuda/stream_measurement.hpp"

namespace headroom {
namespace {

void check_blas(cublasStatus_t status, const std::string& call) {
    if (status == CUBLAS_STATUS_SUCCESS) return;
    throw Error(fmt::format("{} failed with {} ({}): {}", call, cublasLtGetStatusName(status), static_cast<int>(status),
                            cublasLtGetStatusString(status)),
                "", "CUBLASLT_LOG_LEVEL=2 in the environment says more", ExitCode::failure);
}

constexpr std::int64_t workspace_bytes = 64 * mebi;

/// Y[m,n] = X[m,k] W[n,k]^T, all row-major bf16, sums in fp32: the forward product of a linear layer.
class GemmMeasurement : public StreamMeasurement {
 public:
    explicit GemmMeasurement(const GemmProbe& probe)
        : StreamMeasurement(1),
          probe_(probe),
          x_(2 * probe.m * probe.k),
          w_(2 * probe.n * probe.k),
          y_(2 * probe.m * probe.n),
          workspace_(workspace_bytes) {
        fill_normal(stream(), x_.as<bf16>(), probe.m * probe.k, 1);
        fill_normal(stream(), w_.as<bf16>(), probe.n * probe.k, 2);
        check_blas(cublasLtCreate(&handle_), "cublasLtCreate");
        check_blas(cublasLtMatmulDescCreate(&operation_, CUBLAS_COMPUTE_32F, CUDA_R_32F), "cublasLtMatmulDescCreate");
        const cublasOperation_t transpose = CUBLAS_OP_T;
        check_blas(
            cublasLtMatmulDescSetAttribute(operation_, CUBLASLT_MATMUL_DESC_TRANSA, &transpose, sizeof transpose),
            "cublasLtMatmulDescSetAttribute");
        // The library is column-major: Y^T = (W^T)^T X^T.
        layout(&w_layout_, probe.k, probe.n);
        layout(&x_layout_, probe.k, probe.m);
        layout(&y_layout_, probe.n, probe.m);
        choose();
        synchronize();
    }
    ~GemmMeasurement() override {
        for (const cublasLtMatrixLayout_t one : {w_layout_, x_layout_, y_layout_}) {
            if (one != nullptr) cublasLtMatrixLayoutDestroy(one);
        }
        if (operation_ != nullptr) cublasLtMatmulDescDestroy(operation_);
        if (handle_ != nullptr) cublasLtDestroy(handle_);
    }
    GemmMeasurement(const GemmMeasurement&) = delete;
    GemmMeasurement& operator=(const GemmMeasurement&) = delete;

    Check verify() override {
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
    void enqueue(cudaStream_t stream) override {
        const float one = 1, zero = 0;
        check_blas(
            cublasLtMatmul(handle_, operation_, &one, w_.as(), w_layout_, x_.as(), x_layout_, &zero, y_.as(), y_layout_,
                           y_.as(), y_layout_, &choice_.algo, workspace_.as(), workspace_bytes, stream),
            "cublasLtMatmul");
    }

 private:
    static void layout(cublasLtMatrixLayout_t* result, std::int64_t rows, std::int64_t columns) {
        check_blas(cublasLtMatrixLayoutCreate(result, CUDA_R_16BF, static_cast<std::uint64_t>(rows),
                                              static_cast<std::uint64_t>(columns), rows),
                   "cublasLtMatrixLayoutCreate");
    }

    /// The library's own first choice, as frameworks take it.
    void choose() {
        cublasLtMatmulPreference_t preference = nullptr;
        check_blas(cublasLtMatmulPreferenceCreate(&preference), "cublasLtMatmulPreferenceCreate");
        const auto bytes = static_cast<std::size_t>(workspace_bytes);
        cublasLtMatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &bytes,
                                             sizeof bytes);
        int found = 0;
        const cublasStatus_t status = cublasLtMatmulAlgoGetHeuristic(
            handle_, operation_, w_layout_, x_layout_, y_layout_, y_layout_, preference, 1, &choice_, &found);
        cublasLtMatmulPreferenceDestroy(preference);
        check_blas(status, "cublasLtMatmulAlgoGetHeuristic");
        if (found == 0) throw Waived("cuBLASLt has no algorithm for this product");
    }

    GemmProbe probe_;
    DeviceBuffer x_, w_, y_, workspace_;
    cublasLtHandle_t handle_ = nullptr;
    cublasLtMatmulDesc_t operation_ = nullptr;
    cublasLtMatrixLayout_t w_layout_ = nullptr, x_layout_ = nullptr, y_layout_ = nullptr;
    cublasLtMatmulHeuristicResult_t choice_{};
};

}  // namespace

std::unique_ptr<Measurement> prepare_gemm(const GemmProbe& probe) { return std::make_unique<GemmMeasurement>(probe); }

std::string cublas_version_text() {
    const std::size_t version = cublasLtGetVersion();  // 130100
    return fmt::format("{}.{}.{}", version / 10000, version / 100 % 100, version % 100);
}

}  // namespace headroom
