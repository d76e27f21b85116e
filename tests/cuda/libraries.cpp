// SPDX-License-Identifier: Apache-2.0
// Products and attention as the libraries compute them, of shapes that they might not like.
#include <doctest/doctest.h>

#include <cmath>
#include <utility>

#include "calibrate/cuda/attention_calls.hpp"
#include "calibrate/cuda/product.hpp"
#include "tests/cuda/device_values.hpp"

using namespace headroom;

TEST_CASE("products: sums over blocks, transposes, and operands of more than 2^31 elements") {
    Products products;
    const auto dot = [](const Values& a, const Values& b) {
        double sum = 0;
        for (std::size_t i = 0; i < a.size(); ++i) sum += a[i] * b[i];
        return sum;
    };
    {
        // C[m,n] = sum over blocks of A[block][m,k] B[n, block k]^T, at odd places of larger tensors.
        constexpr std::int64_t m = 96, n = 72, k = 40, blocks = 3;
        Halves a(blocks * m * k + 8), b(n * blocks * k + 24), c(m * n + 16);
        a.normal(1), b.normal(2);
        const Product what{m,
                           n,
                           k,
                           blocks,
                           {View(0, 16), k, m * k, false},
                           {View(1, 48), blocks * k, k, true},
                           {View(2, 32), n, 0, false}};
        products.run(nullptr, what, a.get() + 8, b.get() + 24, c.get() + 16);
        Values expected;
        for (std::int64_t row = 0; row < m; ++row) {
            for (std::int64_t column = 0; column < n; ++column) {
                double sum = 0;
                for (std::int64_t block = 0; block < blocks; ++block) {
                    sum += dot(a.part(8 + (block * m + row) * k, k), b.part(24 + (column * blocks + block) * k, k));
                }
                expected.push_back(sum);
            }
        }
        CHECK(error(c.part(16, m * n), expected) < 2 * one_rounding);
    }
    if (free_gib() < 30) return;
    constexpr std::int64_t m = 530'000, n = 4096, k = 4096;  // A and C have 2^31 and 24 million elements
    Halves a(m * k), b(n * k), c(m * n);
    a.normal(1), b.normal(2);
    products.run(nullptr, {m, n, k, 1, {{}, k, 0, false}, {{}, k, 0, true}, {{}, n, 0, false}}, a, b, c);
    Values got, expected;
    for (const std::int64_t row : {std::int64_t{0}, m / 2, std::int64_t{524'288}, m - 1}) {
        const Values mine = a.part(row * k, k);
        for (std::int64_t column = 0; column < n; column += 819) {
            got.push_back(c.part(row * n + column, 1).front());
            expected.push_back(dot(mine, b.part(column * k, k)));
        }
    }
    CHECK(error(got, expected) < one_rounding);
    // The gradient of weights sums over as many rows.
    Halves gradient(64 * k);
    products.run(nullptr, {64, k, m, 1, {{}, n, 0, true}, {{}, k, 0, false}, {{}, k, 0, false}}, c, a, gradient);
    check_cuda(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
    CHECK(std::isfinite(dot(gradient.part(63 * k, k), Values(at(k), 1))));
}
