// SPDX-License-Identifier: Apache-2.0
#include "calibrate/cuda/gemm_plan.hpp"

#include <fmt/format.h>

#include "models/error.hpp"

namespace headroom {
namespace {

cublasLtMatrixLayout_t layout(std::int64_t rows, std::int64_t columns) {
    cublasLtMatrixLayout_t made = nullptr;
    check_blas(cublasLtMatrixLayoutCreate(&made, CUDA_R_16BF, static_cast<std::uint64_t>(rows),
                                          static_cast<std::uint64_t>(columns), rows),
               "cublasLtMatrixLayoutCreate");
    return made;
}

}  // namespace

void check_blas(cublasStatus_t status, const char* call) {
    if (status == CUBLAS_STATUS_SUCCESS) return;
    throw Error(fmt::format("{} failed with {} ({}): {}", call, cublasLtGetStatusName(status), static_cast<int>(status),
                            cublasLtGetStatusString(status)),
                "", "CUBLASLT_LOG_LEVEL=2 in the environment says more", ExitCode::failure);
}

GemmPlan::GemmPlan(cublasLtHandle_t handle, std::int64_t m, std::int64_t n, std::int64_t k, ProductRole role)
    : handle_(handle) {
    check_blas(cublasLtMatmulDescCreate(&operation_, CUBLAS_COMPUTE_32F, CUDA_R_32F), "cublasLtMatmulDescCreate");
    // The library is column-major, so a row-major C[m,n] is its n x m, and the right operand comes first.
    const bool turn_right = role == ProductRole::forward, turn_left = role == ProductRole::weight_gradient;
    const cublasOperation_t first = turn_right ? CUBLAS_OP_T : CUBLAS_OP_N;
    const cublasOperation_t second = turn_left ? CUBLAS_OP_T : CUBLAS_OP_N;
    check_blas(cublasLtMatmulDescSetAttribute(operation_, CUBLASLT_MATMUL_DESC_TRANSA, &first, sizeof first),
               "cublasLtMatmulDescSetAttribute");
    check_blas(cublasLtMatmulDescSetAttribute(operation_, CUBLASLT_MATMUL_DESC_TRANSB, &second, sizeof second),
               "cublasLtMatmulDescSetAttribute");
    right_ = turn_right ? layout(k, n) : layout(n, k);
    left_ = turn_left ? layout(m, k) : layout(k, m);
    out_ = layout(n, m);

    cublasLtMatmulPreference_t preference = nullptr;
    check_blas(cublasLtMatmulPreferenceCreate(&preference), "cublasLtMatmulPreferenceCreate");
    const auto bytes = static_cast<std::size_t>(gemm_workspace_bytes);
    cublasLtMatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &bytes, sizeof bytes);
    int found = 0;
    const cublasStatus_t status =
        cublasLtMatmulAlgoGetHeuristic(handle_, operation_, right_, left_, out_, out_, preference, 1, &choice_, &found);
    cublasLtMatmulPreferenceDestroy(preference);
    check_blas(status, "cublasLtMatmulAlgoGetHeuristic");
    if (found == 0) {
        throw Error(fmt::format("cuBLASLt has no algorithm for a product of {} x {} x {}", m, n, k), "", "",
                    ExitCode::failure);
    }
}

GemmPlan::~GemmPlan() {
    for (const cublasLtMatrixLayout_t one : {left_, right_, out_}) {
        if (one != nullptr) cublasLtMatrixLayoutDestroy(one);
    }
    if (operation_ != nullptr) cublasLtMatmulDescDestroy(operation_);
}

void GemmPlan::run(cudaStream_t stream, const void* left, const void* right, void* out, void* workspace,
                   bool accumulate) const {
    const float one = 1, start = accumulate ? 1 : 0;
    check_blas(cublasLtMatmul(handle_, operation_, &one, right, right_, left, left_, &start, out, out_, out, out_,
                              &choice_.algo, workspace, choice_.workspaceSize, stream),
               "cublasLtMatmul");
}

}  // namespace headroom
