// SPDX-License-Identifier: Apache-2.0
// Hugging Face config.json -> ModelFile. Dense decoders become a Transformer, exact to the parameter; everything else
// is refused by name, and still counted where its structure is known.
#pragma once

#include <string>

#include "configs/load.hpp"
#include "configs/reader.hpp"

namespace headroom {

ModelFile import_hf_config(const Value& root, const std::string& name, const std::string& source);

}  // namespace headroom
