// SPDX-License-Identifier: Apache-2.0
// The command line that was typed, as a page quotes it.
#pragma once

#include <string>
#include <vector>

namespace headroom {

/// As a shell would take it back: "headroom report -o 'my report.html'".
std::string command_line(const std::string& command, const std::vector<std::string>& words);

/// The words without a flag and its value, however it is written: --flag v, --flag=v, -f v, -fv.
std::vector<std::string> without_flag(const std::vector<std::string>& words, const std::string& name, char letter = 0);

}  // namespace headroom
