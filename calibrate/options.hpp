// SPDX-License-Identifier: Apache-2.0
// The command line of headroom-calibrate. Read by hand: the machines it runs on have no Boost.
#pragma once

#include <string>
#include <vector>

#include "calibrate/plan.hpp"

namespace headroom {

enum class CalibrateAction { help, version, probes, fit, run, check, compare };

/// What `run` executes. Values are kept as typed: names, sizes and recipe keys are read where models are known.
struct RunOptions {
    std::string model = "llama3-8b", cluster = "h200", calibration;
    std::string gpus = "1", ulysses, ring, layers;
    std::vector<std::string> methods, contexts;              ///< comma-separated lists
    std::vector<std::string> heads_per_stage, chunk_tokens;  ///< the same, for upipe and for fpdt
    std::vector<std::string> sets;                           ///< key=value
    std::string compare;                                     ///< a file of earlier runs: nothing is run
    int steps = 3;                                           ///< timed repetitions
    double warm_seconds = 2;                                 ///< of load before them, at least
    bool blocks_only = false;                                ///< --no-loss
};

/// What `check` proves, and where.
struct CheckOptions {
    std::vector<int> ranks;  ///< empty: as many as the machine suggests
    bool on_host = false;
};

struct CalibrateOptions {
    CalibrateAction action = CalibrateAction::help;
    CalibrateAction help_of = CalibrateAction::help;  ///< the action that help is asked for; itself: all of them
    // probes
    bool list = false, dry_run = false;
    int plan_gpus = 0;  ///< of the machine that is only planned for; 0: not said
    Selection selection;
    std::string resume;  ///< probe file to continue
    std::string output;  ///< -o; empty: standard output
    // fit
    std::vector<std::string> inputs;  ///< probe files
    std::string base, name;           ///< calibration to start from, and the name of the new one
    std::string cluster_output;       ///< file for the cluster; empty: none is written
    // compare
    double tolerance = 0.02;
    RunOptions run;
    CheckOptions check;
};

/// Words behind `headroom calibrate`. Throws Error (usage).
CalibrateOptions parse_calibrate_options(const std::vector<std::string>& words);
/// Of one action, or of all of them with CalibrateAction::help; in help.cpp.
std::string calibrate_help(CalibrateAction of = CalibrateAction::help);

/// probes with --list, probes and run with --dry-run, run with --compare, check --on-host, fit and the help ask no GPU.
bool needs_device(const CalibrateOptions& options);

}  // namespace headroom
