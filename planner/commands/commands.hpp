// SPDX-License-Identifier: Apache-2.0
// The sub-commands. Each takes the words behind its name, writes its result, and says how the program shall end.
#pragma once

#include <array>
#include <string>
#include <vector>

#include "models/error.hpp"
#include "planner/commands/arguments.hpp"

namespace headroom {

using Words = std::vector<std::string>;

ExitCode plan_command(const Words& words);
ExitCode max_context_command(const Words& words);
ExitCode recommend_command(const Words& words);
ExitCode what_if_command(const Words& words);
ExitCode sweep_command(const Words& words);
ExitCode simulate_command(const Words& words);
ExitCode report_command(const Words& words);
ExitCode launch_command(const Words& words);
ExitCode completion_command(const Words& words);
ExitCode show_command(const Words& words);
ExitCode validate_command(const Words& words);
ExitCode calibrate_command(const Words& words);

// What each takes: its help, the completions and the manual page are made from this.
Synopsis plan_synopsis();
Synopsis max_context_synopsis();
Synopsis recommend_synopsis();
Synopsis what_if_synopsis();
Synopsis sweep_synopsis();
Synopsis simulate_synopsis();
Synopsis report_synopsis();
Synopsis launch_synopsis();
Synopsis validate_synopsis();
Synopsis calibrate_synopsis();
Synopsis completion_synopsis();
Synopsis show_synopsis();

struct Command {
    const char* name;
    const char* summary;
    ExitCode (*run)(const Words& words);
    Synopsis (*synopsis)() = nullptr;
};

inline constexpr std::array commands{
    Command{"plan", "does one configuration fit, with what memory and step time", plan_command, plan_synopsis},
    Command{"max-context", "per method: the longest context, what stops it, and its step time", max_context_command,
            max_context_synopsis},
    Command{"recommend", "the fastest recipe that fits, or the one that reaches furthest", recommend_command,
            recommend_synopsis},
    Command{"what-if", "a configuration against changed ones: what moves, by how much", what_if_command,
            what_if_synopsis},
    Command{"sweep", "every combination of lists of values, one row each", sweep_command, sweep_synopsis},
    Command{"simulate", "where the time of one step goes, and its timeline", simulate_command, simulate_synopsis},
    Command{"report", "one HTML file for colleagues: methods, memory, speed, sources", report_command, report_synopsis},
    Command{"launch", "the files and flags of the code that runs a recipe", launch_command, launch_synopsis},
    Command{"validate", "predictions against measured results, published or yours", validate_command,
            validate_synopsis},
    Command{"calibrate", "measures this machine's GPUs and fits the constants", calibrate_command, calibrate_synopsis},
    Command{"completion", "completions for bash, zsh and fish, and the manual page", completion_command,
            completion_synopsis},
    Command{"show", "what is built in: models, clusters, calibrations, recipes", show_command, show_synopsis},
};

}  // namespace headroom
