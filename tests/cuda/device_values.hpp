// SPDX-License-Identifier: Apache-2.0
// Tensors on a GPU for tests, beside their values in double precision.
#pragma once

#include <cstdint>
#include <vector>

#include "calibrate/cuda/errors.hpp"
#include "calibrate/cuda/memory.hpp"
#include "calibrate/cuda/samples.hpp"

namespace headroom {

using Values = std::vector<double>;
inline constexpr double one_rounding = 2.5e-3;  // to bf16, relative L2

template <class Element>
class DeviceValues {
 public:
    explicit DeviceValues(std::int64_t count)
        : count_(count), buffer_(count * static_cast<std::int64_t>(sizeof(Element))) {}
    Element* get() const { return buffer_.as<Element>(); }
    operator Element*() const { return get(); }
    DeviceValues& normal(std::uint64_t seed) {
        fill_normal(nullptr, get(), count_, seed);
        return *this;
    }
    DeviceValues& set(const std::vector<Element>& values) {
        check_cuda(cudaMemcpy(get(), values.data(), values.size() * sizeof(Element), cudaMemcpyHostToDevice),
                   "cudaMemcpy");
        return *this;
    }
    DeviceValues& zero() {
        check_cuda(cudaMemset(get(), 0, static_cast<std::size_t>(buffer_.bytes())), "cudaMemset");
        return *this;
    }
    DeviceValues& copy(const DeviceValues& from) {
        check_cuda(cudaMemcpy(get(), from.get(), static_cast<std::size_t>(buffer_.bytes()), cudaMemcpyDeviceToDevice),
                   "cudaMemcpy");
        return *this;
    }
    Values values() const { return download(get(), count_); }
    Values part(std::int64_t first, std::int64_t count) const { return download(get() + first, count); }

 private:
    std::int64_t count_;
    DeviceBuffer buffer_;
};
using Halves = DeviceValues<bf16>;
using Floats32 = DeviceValues<float>;
using Integers = DeviceValues<std::int64_t>;

inline double error(const Values& result, const Values& expected) {
    ErrorSum sum;
    sum.add(result, expected);
    return sum.relative();
}

inline std::size_t at(std::int64_t i) { return static_cast<std::size_t>(i); }

inline std::int64_t free_gib() {
    std::size_t free = 0, total = 0;
    check_cuda(cudaMemGetInfo(&free, &total), "cudaMemGetInfo");
    return static_cast<std::int64_t>(free >> 30);
}

}  // namespace headroom
