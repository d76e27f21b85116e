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
ExitCode simulate_command(const Words& words);
ExitCode show_command(const Words& words);
ExitCode calibrate_command(const Words& words);

struct Command {
    const char* name;
    const char* summary;
    ExitCode (*run)(const Words& words);
};

inline constexpr std::array commands{
    Command{"plan", "does one configuration fit, with what memory and step time", plan_command},
    Command{"max-context", "per method: the longest context, what stops it, and its step time", max_context_command},
    Command{"simulate", "where the time of one step goes, and its timeline", simulate_command},
    Command{"show", "what is built in: models, clusters, calibrations, recipes", show_command},
    Command{"calibrate", "measures the GPUs here, and fits constants to that", calibrate_command},
};

}  // namespace headroom
