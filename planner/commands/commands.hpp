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
ExitCode recommend_command(const Words& words);
ExitCode what_if_command(const Words& words);
ExitCode sweep_command(const Words& words);
ExitCode simulate_command(const Words& words);
ExitCode show_command(const Words& words);
ExitCode validate_command(const Words& words);

struct Command {
    const char* name;
    const char* summary;
    ExitCode (*run)(const Words& words);
};

inline constexpr std::array commands{
    Command{"plan", "does one configuration fit, with what memory and step time", plan_command},
    Command{"max-context", "per method: the longest context, what stops it, and its step time", max_context_command},
    Command{"recommend", "the fastest recipe that fits a context, or the one that reaches furthest", recommend_command},
    Command{"what-if", "a configuration against changed ones: what moves, by how much", what_if_command},
    Command{"sweep", "every combination of lists of values, one row each", sweep_command},
    Command{"simulate", "where the time of one step goes, and its timeline", simulate_command},
    Command{"validate", "predictions against measured results, published or yours", validate_command},
    Command{"show", "what is built in: models, clusters, calibrations, recipes", show_command},
};

}  // namespace headroom
