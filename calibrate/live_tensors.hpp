// SPDX-License-Identifier: Apache-2.0
// The tensors of a schedule that exist while it is executed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "models/schedule.hpp"

namespace headroom {

struct LiveTensor {
    TensorId id = 0;
    const char* name = "";
    Group group{};
    Place place{};
    Stream stream{};  ///< whose memory pool it comes from
    std::int64_t bytes = 0;
    void* address = nullptr;  ///< as the device gave it; null for a tensor of no bytes
};

/// Several tensors may live under one id: the youngest is meant.
class TensorTable {
 public:
    explicit TensorTable(std::uint32_t ids) : by_id_(ids) {}

    void add(const LiveTensor& tensor);
    /// The youngest under `id`. Throws Error when none is alive.
    const LiveTensor& at(TensorId id) const;
    /// Removes the youngest under `id`. Throws Error when none is alive.
    LiveTensor take(TensorId id);
    std::size_t size() const { return size_; }
    std::vector<LiveTensor> all() const;

 private:
    std::vector<std::vector<LiveTensor>> by_id_;
    std::size_t size_ = 0;
};

}  // namespace headroom
