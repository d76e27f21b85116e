// SPDX-License-Identifier: Apache-2.0
// The command line that was typed, as pages and answers quote it.
#pragma once

#include <string>
#include <vector>

#include "planner/commands/arguments.hpp"

namespace headroom {

/// As a shell would take it back: "headroom report -o 'my report.html'".
std::string command_line(const std::string& command, const std::vector<std::string>& words);

/// Those of the flags that were given, each with its value as a shell would take it back: "--model './my model'".
std::vector<std::string> typed_flags(const Arguments& arguments, const std::vector<std::string>& names);

/// The words without a flag and its value, however it is written: --flag v, --flag=v, -f v, -fv.
std::vector<std::string> without_flag(const std::vector<std::string>& words, const std::string& name, char letter = 0);

}  // namespace headroom
