// SPDX-License-Identifier: Apache-2.0
// Layers that are not full causal self-attention over the sequence: windows, linear attention, cross-attention.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "configs/hf_families.hpp"
#include "configs/hf_fields.hpp"

namespace headroom {

/// One sentence for each kind of such layers, with their number: "12 of 24 layers use a 128-token sliding window".
/// Without a family only what layer_types lists can be numbered.
std::vector<std::string> unusual_layers(HfFields& fields, const HfFamily* family, std::int64_t layers);

/// Structures that make the sizes mean something else; when there is one, nothing is counted.
std::vector<std::string> foreign_structures(HfFields& fields);

/// Number of entries of cross_attention_layers.
std::int64_t cross_attention_layers(HfFields& fields);

}  // namespace headroom
