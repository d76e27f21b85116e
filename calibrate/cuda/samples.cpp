// SPDX-License-Identifier: Apache-2.0
#include "calibrate/cuda/samples.hpp"

#include <bit>
#include <cmath>

#include "calibrate/cuda/errors.hpp"

namespace headroom {
namespace {

template <class Raw>
std::vector<Raw> raw(const void* data, std::int64_t elements) {
    std::vector<Raw> values(static_cast<std::size_t>(elements));
    check_cuda(cudaMemcpy(values.data(), data, values.size() * sizeof(Raw), cudaMemcpyDeviceToHost), "cudaMemcpy");
    return values;
}

}  // namespace

std::vector<double> download(const bf16* data, std::int64_t elements) {
    std::vector<double> result;
    result.reserve(static_cast<std::size_t>(elements));
    for (const std::uint16_t bits : raw<std::uint16_t>(data, elements)) {
        result.push_back(std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16));
    }
    return result;
}

std::vector<double> download(const float* data, std::int64_t elements) {
    const std::vector<float> values = raw<float>(data, elements);
    return {values.begin(), values.end()};
}

void ErrorSum::add(const std::vector<double>& result, const std::vector<double>& reference) {
    for (std::size_t i = 0; i < reference.size(); ++i) {
        const double off = result.at(i) - reference[i];
        difference_ += off * off;
        size_ += reference[i] * reference[i];
    }
}

double ErrorSum::relative() const { return size_ > 0 ? std::sqrt(difference_ / size_) : difference_; }

}  // namespace headroom
