// SPDX-License-Identifier: Apache-2.0
// Attention, timed on random data and compared row by row with a reference in double at the very size that is timed.
#pragma once

#include <cuda_runtime_api.h>

#include <memory>
#include <string>

#include "calibrate/device.hpp"

namespace headroom {

/// One attention with its operands, on a stream of the current GPU.
class AttentionWork {
 public:
    virtual ~AttentionWork() = default;
    virtual void execute() = 0;
    virtual Check verify() = 0;
    virtual Json notes() = 0;
};
std::unique_ptr<AttentionWork> make_attention_work(cudaStream_t stream, const Attention& shape);

std::unique_ptr<PreparedProbe> prepare_attention(const AttentionProbe& probe);
/// Of the library that is loaded; the headers may be another.
std::string cudnn_loaded_version();

}  // namespace headroom
