// SPDX-License-Identifier: Apache-2.0
// Matrix products through cuBLASLt: bf16 operands with strides, fp32 sums.
#pragma once

#include <cublasLt.h>
#include <cuda_runtime_api.h>

#include <array>
#include <cstdint>
#include <map>

#include "calibrate/cuda/memory.hpp"
#include "models/computation.hpp"

namespace headroom {

inline constexpr std::int64_t gemm_workspace_bytes = 64 * 1024 * 1024;

class BlasHandle {
 public:
    BlasHandle();
    ~BlasHandle() { cublasLtDestroy(handle_); }
    BlasHandle(const BlasHandle&) = delete;
    BlasHandle& operator=(const BlasHandle&) = delete;
    cublasLtHandle_t get() const { return handle_; }

 private:
    cublasLtHandle_t handle_ = nullptr;
};

/// Makes a plan for each shape once: the library's own first choice, as frameworks take it. Products that may run at
/// the same time need objects of their own, for the workspace is one.
class Products {
 public:
    Products() = default;
    ~Products();
    Products(const Products&) = delete;
    Products& operator=(const Products&) = delete;

    /// Makes the plan. Throws Error where the library has none.
    void prepare(const Product& what) { plan(what); }
    /// Tensors begin at multiples of 256 bytes; what lies inside of them is aligned as its offset says.
    void run(cudaStream_t stream, const Product& what, const void* a, const void* b, void* c);
    /// Of gemm_workspace_bytes, from here on; null for one of its own.
    void use_workspace(void* workspace) { lent_ = workspace; }
    /// Of its own workspace.
    std::int64_t scratch_bytes() const { return own_.bytes(); }

 private:
    struct Plan {
        cublasLtMatmulDesc_t operation = nullptr;
        cublasLtMatrixLayout_t left = nullptr, right = nullptr, out = nullptr;
        cublasLtMatmulHeuristicResult_t choice{};
    };
    using Key = std::array<std::int64_t, 16>;

    Plan& plan(const Product& what);
    void make(Plan& plan, const Product& what, std::int64_t batch, const std::array<std::uint32_t, 3>& alignments);
    void launch(cudaStream_t stream, const Plan& plan, const void* a, const void* b, void* c, bool accumulate);
    void* workspace();

    BlasHandle handle_;
    DeviceBuffer own_;
    void* lent_ = nullptr;
    std::map<Key, Plan> plans_;
};

}  // namespace headroom
