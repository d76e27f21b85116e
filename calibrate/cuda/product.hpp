// SPDX-License-Identifier: Apache-2.0
// Products of a described schedule through cuBLASLt: bf16 operands with strides, fp32 sums.
#pragma once

#include <array>
#include <map>

#include "calibrate/cuda/gemm_plan.hpp"
#include "calibrate/cuda/memory.hpp"
#include "models/computation.hpp"

namespace headroom {

/// Makes a plan for each shape once.
class Products {
 public:
    Products() : workspace_(gemm_workspace_bytes) {}
    ~Products();
    Products(const Products&) = delete;
    Products& operator=(const Products&) = delete;

    void run(cudaStream_t stream, const Product& what, const void* a, const void* b, void* c);

 private:
    struct Plan {
        cublasLtMatmulDesc_t operation = nullptr;
        cublasLtMatrixLayout_t left = nullptr, right = nullptr, out = nullptr;
        cublasLtMatmulHeuristicResult_t choice{};
    };
    using Key = std::array<std::int64_t, 13>;

    Plan& plan(const Product& what, std::int64_t batch);
    void launch(cudaStream_t stream, const Plan& plan, const void* a, const void* b, void* c, bool accumulate);

    BlasHandle handle_;
    DeviceBuffer workspace_;
    std::map<Key, Plan> plans_;
};

}  // namespace headroom
