// SPDX-License-Identifier: Apache-2.0
// The command line of headroom-calibrate. Read by hand: the machines it runs on have no Boost.
#pragma once

#include <string>
#include <vector>

#include "calibrate/plan.hpp"

namespace headroom {

enum class CalibrateAction { help, version, probes, fit, run, check };

struct CalibrateOptions {
    CalibrateAction action = CalibrateAction::help;
    // probes
    bool list = false, dry_run = false;
    Selection selection;
    std::string resume;  ///< probe file to continue
    std::string output;  ///< -o; empty: standard output
    // fit
    std::vector<std::string> inputs;  ///< probe files
    std::string base, name;           ///< calibration to start from, and the name of the new one
};

/// Words behind `headroom calibrate`. Throws Error (usage).
CalibrateOptions parse_calibrate_options(const std::vector<std::string>& words);
std::string calibrate_help();

/// probes with --list or --dry-run, fit and the help ask no GPU.
bool needs_device(const CalibrateOptions& options);

}  // namespace headroom
