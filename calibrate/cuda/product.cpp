// SPDX-License-Identifier: Apache-2.0
#include "calibrate/cuda/product.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "models/error.hpp"

namespace headroom {
namespace {

void check_blas(cublasStatus_t status, const char* call) {
    if (status == CUBLAS_STATUS_SUCCESS) return;
    throw Error(fmt::format("{} failed with {} ({}): {}", call, cublasLtGetStatusName(status), static_cast<int>(status),
                            cublasLtGetStatusString(status)),
                "", "CUBLASLT_LOG_LEVEL=2 in the environment says more", ExitCode::failure);
}

/// A result without a batch stride is a sum over the batch: one product after the other.
std::int64_t batch_at_once(const Product& p) { return p.c.batch_stride != 0 ? p.batch : 1; }

/// Of a row-major [rows][columns] matrix the library, which is column-major, sees the transpose.
cublasLtMatrixLayout_t layout_of(const Matrix& matrix, std::int64_t rows, std::int64_t columns, std::int64_t batch) {
    if (matrix.transposed) std::swap(rows, columns);
    cublasLtMatrixLayout_t layout = nullptr;
    check_blas(cublasLtMatrixLayoutCreate(&layout, CUDA_R_16BF, static_cast<std::uint64_t>(columns),
                                          static_cast<std::uint64_t>(rows), matrix.row_stride),
               "cublasLtMatrixLayoutCreate");
    const auto count = static_cast<std::int32_t>(batch);
    check_blas(cublasLtMatrixLayoutSetAttribute(layout, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &count, sizeof count),
               "cublasLtMatrixLayoutSetAttribute");
    const std::int64_t stride = matrix.batch_stride;
    check_blas(
        cublasLtMatrixLayoutSetAttribute(layout, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, &stride, sizeof stride),
        "cublasLtMatrixLayoutSetAttribute");
    return layout;
}

void set_transpose(cublasLtMatmulDesc_t operation, cublasLtMatmulDescAttributes_t which, bool transposed) {
    const cublasOperation_t value = transposed ? CUBLAS_OP_T : CUBLAS_OP_N;
    check_blas(cublasLtMatmulDescSetAttribute(operation, which, &value, sizeof value),
               "cublasLtMatmulDescSetAttribute");
}

/// Bytes that divide the address of every batch of an operand; 256 is as much as the library asks for.
std::uint32_t alignment_of(const Matrix& matrix) {
    std::uint32_t alignment = 256;
    while (matrix.view.offset % alignment != 0 || 2 * matrix.batch_stride % alignment != 0) alignment /= 2;
    return alignment;
}

const char* moved(const void* address, std::int64_t elements) {
    return static_cast<const char*>(address) + 2 * elements;
}

}  // namespace

BlasHandle::BlasHandle() { check_blas(cublasLtCreate(&handle_), "cublasLtCreate"); }

Products::~Products() {
    for (auto& [key, plan] : plans_) {
        for (cublasLtMatrixLayout_t layout : {plan.left, plan.right, plan.out}) {
            if (layout != nullptr) cublasLtMatrixLayoutDestroy(layout);
        }
        if (plan.operation != nullptr) cublasLtMatmulDescDestroy(plan.operation);
    }
}

void Products::run(cudaStream_t stream, const Product& what, const void* a, const void* b, void* c) {
    const Plan& one = plan(what);
    const std::int64_t launches = what.batch / batch_at_once(what);
    for (std::int64_t i = 0; i < launches; ++i) {
        launch(stream, one, moved(a, i * what.a.batch_stride), moved(b, i * what.b.batch_stride), c,
               what.accumulate || i > 0);
    }
}

Products::Plan& Products::plan(const Product& p) {
    const std::int64_t batch = batch_at_once(p);
    const std::array<std::uint32_t, 3> alignments{alignment_of(p.b), alignment_of(p.a), alignment_of(p.c)};
    const Key key{p.m,
                  p.n,
                  p.k,
                  batch,
                  p.a.row_stride,
                  p.a.batch_stride,
                  p.a.transposed,
                  p.b.row_stride,
                  p.b.batch_stride,
                  p.b.transposed,
                  p.c.row_stride,
                  p.c.batch_stride,
                  p.accumulate,
                  alignments[0],
                  alignments[1],
                  alignments[2]};
    const auto [found, is_new] = plans_.try_emplace(key);
    if (is_new) make(found->second, p, batch, alignments);
    return found->second;
}

void Products::make(Plan& plan, const Product& p, std::int64_t batch, const std::array<std::uint32_t, 3>& alignments) {
    check_blas(cublasLtMatmulDescCreate(&plan.operation, CUBLAS_COMPUTE_32F, CUDA_R_32F), "cublasLtMatmulDescCreate");
    // C^T = B^T A^T.
    set_transpose(plan.operation, CUBLASLT_MATMUL_DESC_TRANSA, p.b.transposed);
    set_transpose(plan.operation, CUBLASLT_MATMUL_DESC_TRANSB, p.a.transposed);
    plan.left = layout_of(p.b, p.k, p.n, batch);
    plan.right = layout_of(p.a, p.m, p.k, batch);
    plan.out = layout_of(p.c, p.m, p.n, batch);
    cublasLtMatmulPreference_t preference = nullptr;
    check_blas(cublasLtMatmulPreferenceCreate(&preference), "cublasLtMatmulPreferenceCreate");
    const auto set = [&](cublasLtMatmulPreferenceAttributes_t which, const auto& value) {
        cublasLtMatmulPreferenceSetAttribute(preference, which, &value, sizeof value);
    };
    set(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, static_cast<std::size_t>(gemm_workspace_bytes));
    set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, alignments[0]);
    set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, alignments[1]);
    set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, alignments[2]);
    set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, alignments[2]);
    int count = 0;
    const cublasStatus_t status = cublasLtMatmulAlgoGetHeuristic(
        handle_.get(), plan.operation, plan.left, plan.right, plan.out, plan.out, preference, 1, &plan.choice, &count);
    cublasLtMatmulPreferenceDestroy(preference);
    if (status == CUBLAS_STATUS_SUCCESS && count > 0) return;
    throw Error(fmt::format("cuBLASLt has no algorithm for {} products of {} x {} x {}: {}", batch, p.m, p.n, p.k,
                            cublasLtGetStatusName(status)),
                "", "CUBLASLT_LOG_LEVEL=2 in the environment says more", ExitCode::failure);
}

void* Products::workspace() {
    if (lent_ != nullptr) return lent_;
    if (own_.bytes() == 0) own_ = DeviceBuffer(gemm_workspace_bytes);
    return own_.as();
}

void Products::launch(cudaStream_t stream, const Plan& plan, const void* a, const void* b, void* c, bool accumulate) {
    const float one = 1;
    const float keep = accumulate ? 1 : 0;
    check_blas(cublasLtMatmul(handle_.get(), plan.operation, &one, b, plan.left, a, plan.right, &keep, c, plan.out, c,
                              plan.out, &plan.choice.algo, workspace(), gemm_workspace_bytes, stream),
               "cublasLtMatmul");
}

}  // namespace headroom
