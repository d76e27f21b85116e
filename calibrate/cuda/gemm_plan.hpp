// SPDX-License-Identifier: Apache-2.0
// One matrix product through cuBLASLt: bf16 operands, fp32 sums.
#pragma once

#include <cublasLt.h>
#include <cuda_runtime_api.h>

#include <cstdint>

#include "calibrate/real_kernel.hpp"

namespace headroom {

/// Throws Error unless the call succeeded.
void check_blas(cublasStatus_t status, const char* call);

class BlasHandle {
 public:
    BlasHandle() { check_blas(cublasLtCreate(&handle_), "cublasLtCreate"); }
    ~BlasHandle() { cublasLtDestroy(handle_); }
    BlasHandle(const BlasHandle&) = delete;
    BlasHandle& operator=(const BlasHandle&) = delete;
    cublasLtHandle_t get() const { return handle_; }

 private:
    cublasLtHandle_t handle_ = nullptr;
};

inline constexpr std::int64_t gemm_workspace_bytes = 64 * 1024 * 1024;

/// C[m,n], all row-major; the two operands as ProductRole says.
class GemmPlan {
 public:
    GemmPlan(cublasLtHandle_t handle, std::int64_t m, std::int64_t n, std::int64_t k, ProductRole role);
    ~GemmPlan();
    GemmPlan(const GemmPlan&) = delete;
    GemmPlan& operator=(const GemmPlan&) = delete;

    /// `workspace` has gemm_workspace_bytes. `accumulate` adds to what `out` holds.
    void run(cudaStream_t stream, const void* left, const void* right, void* out, void* workspace,
             bool accumulate = false) const;

 private:
    cublasLtHandle_t handle_;
    cublasLtMatmulDesc_t operation_ = nullptr;
    cublasLtMatrixLayout_t left_ = nullptr, right_ = nullptr, out_ = nullptr;
    cublasLtMatmulHeuristicResult_t choice_{};
};

}  // namespace headroom
