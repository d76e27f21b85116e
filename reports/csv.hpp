// SPDX-License-Identifier: Apache-2.0
// Comma-separated values quoted after RFC 4180; lines end with a newline alone, as Unix tools expect.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace headroom {

/// Quoted only where the field asks for it.
std::string csv_field(std::string_view field);

/// One line, ended.
std::string csv_line(const std::vector<std::string>& fields);

}  // namespace headroom
