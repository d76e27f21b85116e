// SPDX-License-Identifier: Apache-2.0
// Which probes there are, in the order of what they decide, and which of them a command line asks for.
#pragma once

#include <string>
#include <vector>

#include "calibrate/probe.hpp"

namespace headroom {

/// What the plan has to know of a machine. The defaults are those of one H200, for plans made without a GPU.
struct PlanMachine {
    int gpus = 1;           ///< of the job
    int gpus_per_node = 0;  ///< 0: all on one node
    Bytes device_memory{141 * gibi};
    Bytes host_memory{128 * gibi};
    int cpu_threads = 16;

    int node_gpus() const { return gpus_per_node > 0 ? gpus_per_node : gpus; }
    int nodes_of(int ranks) const { return (ranks + node_gpus() - 1) / node_gpus(); }
};

/// All of them. Names are unique.
std::vector<Probe> all_probes(const PlanMachine& machine);

struct Selection {
    std::vector<std::string> only, skip;  ///< globs over names; `only` empty: all
    double budget = 0;                    ///< seconds; 0: no limit
};

/// Does one of the globs match?
bool matches_any(const std::string& name, const std::vector<std::string>& globs);

struct ProbePlan {
    std::vector<Probe> probes;   ///< to run
    std::vector<Probe> too_big;  ///< need more memory than the machine has
    std::vector<Probe> cut;      ///< beyond the budget
    double seconds = 0;          ///< estimated
};

/// Throws Error for a glob that matches nothing.
ProbePlan plan_probes(const PlanMachine& machine, const Selection& selection);

std::string list_text(const ProbePlan& plan);     ///< --list: names
std::string dry_run_text(const ProbePlan& plan);  ///< --dry-run: with seconds and bytes

}  // namespace headroom
