// SPDX-License-Identifier: Apache-2.0
// The sizes of a decoder as its config gives them.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "configs/hf_count.hpp"
#include "configs/hf_families.hpp"
#include "configs/hf_fields.hpp"
#include "models/transformer.hpp"

namespace headroom {

struct HfShape {
    Transformer transformer;
    std::optional<LatentAttention> latent;
    std::optional<Experts> experts;
    std::vector<std::string> refusals;  ///< what the block has that a Transformer cannot say
    std::vector<std::string> notes;
};

/// Reads all sizes; problems and missing fields are left in `fields` for one error.
HfShape read_shape(HfFields& fields, const HfFamily& family);

}  // namespace headroom
