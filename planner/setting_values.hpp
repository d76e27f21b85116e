// SPDX-License-Identifier: Apache-2.0
// The settings of a recipe as named values, in the order and under the names of recipe files. The one list that every
// output (text, JSON, CSV) is written from.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "models/settings.hpp"

namespace headroom {

/// monostate: not said, or not a setting of this method.
using SettingValue = std::variant<std::monostate, bool, std::int64_t, std::string>;

struct NamedSetting {
    std::string_view key;  ///< dotted, e.g. "offload.block_inputs"
    SettingValue value;
};

std::vector<NamedSetting> setting_values(const Settings& settings);
/// What belongs to other methods (heads per stage, chunk tokens, rotation) is monostate.
std::vector<NamedSetting> setting_values(const Recipe& recipe);

/// As typed after --set; empty for monostate.
std::string to_string(const SettingValue& value);

}  // namespace headroom
