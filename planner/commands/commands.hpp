// SPDX-License-Identifier: Apache-2.0
// The sub-commands. Each takes the words behind its name, writes its result, and says how the program shall end.
#pragma once

#include <array>
#include <string>
#include <vector>

#include "models/error.hpp"

namespace headroom {

using Words = std::vector<std::string>;

ExitCode plan_command(const Words& words);
ExitCode max_context_command(const Words& words);
ExitCode launch_command(const Words& words);
ExitCode report_command(const Words& words);
ExitCode show_command(const Words& words);

struct Command {
    const char* name;
    const char* summary;
    ExitCode (*run)(const Words& words);
};

inline constexpr std::array commands{
    Command{"plan", "does one configuration fit, and what takes the memory", plan_command},
    Command{"max-context", "per method: the longest context, and what stops it", max_context_command},
    Command{"launch", "the files and flags of the code that runs a recipe", launch_command},
    Command{"report", "one HTML file that a colleague can open: methods, memory, speed", report_command},
    Command{"show", "models, clusters, recipes and methods that are built in", show_command},
};

}  // namespace headroom
