// SPDX-License-Identifier: Apache-2.0
// Attention, timed on random data and compared row by row with a reference in double at the very size that is timed.
#pragma once

#include <memory>
#include <string>

#include "calibrate/device.hpp"

namespace headroom {

std::unique_ptr<Measurement> prepare_attention(const AttentionProbe& probe);
/// Of the library that is loaded; the headers may be another.
std::string cudnn_loaded_version();

}  // namespace headroom
