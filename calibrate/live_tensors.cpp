// SPDX-License-Identifier: Apache-2.0
#include "calibrate/live_tensors.hpp"

#include <fmt/format.h>

#include "models/error.hpp"

namespace headroom {
namespace {

Error dead(TensorId id) {
    return Error(fmt::format("the schedule uses tensor {}, which is not alive", id), "",
                 "this is a bug: please report it with the command", ExitCode::failure);
}

}  // namespace

void TensorTable::add(const LiveTensor& tensor) {
    if (tensor.id >= by_id_.size()) by_id_.resize(std::size_t{tensor.id} + 1);
    by_id_[tensor.id].push_back(tensor);
    ++size_;
}

const LiveTensor& TensorTable::at(TensorId id) const {
    if (id >= by_id_.size() || by_id_[id].empty()) throw dead(id);
    return by_id_[id].back();
}

LiveTensor TensorTable::take(TensorId id) {
    const LiveTensor tensor = at(id);
    by_id_[id].pop_back();
    --size_;
    return tensor;
}

std::vector<LiveTensor> TensorTable::all() const {
    std::vector<LiveTensor> tensors;
    for (const auto& stack : by_id_) tensors.insert(tensors.end(), stack.begin(), stack.end());
    return tensors;
}

}  // namespace headroom
