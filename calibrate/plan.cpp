// SPDX-License-Identifier: Apache-2.0
// The choice among the probes, and the plan as text.
#include "calibrate/plan.hpp"

#include <fmt/format.h>
#include <fnmatch.h>

#include <algorithm>

#include "models/error.hpp"

namespace headroom {
namespace {

bool matches(const std::string& name, const std::string& glob) { return ::fnmatch(glob.c_str(), name.c_str(), 0) == 0; }

void reject_idle_globs(const std::vector<Probe>& probes, const std::vector<std::string>& globs, const char* flag) {
    for (const std::string& glob : globs) {
        const bool used =
            std::any_of(probes.begin(), probes.end(), [&](const Probe& probe) { return matches(probe.name, glob); });
        if (!used) {
            throw Error(fmt::format("no probe is called '{}'", glob), flag,
                        "headroom calibrate probes --list names them; * stands for any text");
        }
    }
}

std::string row(const Probe& probe, std::size_t width) {
    return fmt::format("{:<{}} {:>6.1f} s {:>9.2f} GiB {:>9.2f} GiB\n", probe.name, width, estimated_seconds(probe),
                       in_gib(probe.device_memory), in_gib(probe.host_memory));
}

}  // namespace

bool matches_any(const std::string& name, const std::vector<std::string>& globs) {
    return std::any_of(globs.begin(), globs.end(), [&](const std::string& glob) { return matches(name, glob); });
}

ProbePlan plan_probes(const PlanMachine& machine, const Selection& selection) {
    const std::vector<Probe> all = all_probes(machine);
    // A name that larger machines have is no mistake; here there is nothing to run for it.
    PlanMachine large = machine;
    large.gpus = std::max(machine.gpus, 8);
    const std::vector<Probe> anywhere = all_probes(large);
    reject_idle_globs(anywhere, selection.only, "--only");
    reject_idle_globs(anywhere, selection.skip, "--skip");
    ProbePlan plan;
    for (const Probe& probe : all) {
        if (!selection.only.empty() && !matches_any(probe.name, selection.only)) continue;
        if (matches_any(probe.name, selection.skip)) continue;
        if (probe.device_memory > machine.device_memory || probe.host_memory > machine.host_memory) {
            plan.too_big.push_back(probe);
        } else if (selection.budget > 0 && plan.seconds + estimated_seconds(probe) > selection.budget) {
            plan.cut.push_back(probe);
        } else {
            plan.seconds += estimated_seconds(probe);
            plan.probes.push_back(probe);
        }
    }
    return plan;
}

std::string list_text(const ProbePlan& plan) {
    std::string text;
    for (const Probe& probe : plan.probes) text += probe.name + "\n";
    return text;
}

std::string dry_run_text(const ProbePlan& plan) {
    constexpr std::size_t least_width = 44;
    std::size_t width = least_width;
    for (const Probe& probe : plan.probes) width = std::max(width, probe.name.size());
    std::string text =
        fmt::format("{:<{}} {:>8} {:>13} {:>13}\n", "probe", width, "at most", "GPU memory", "host memory");
    Bytes device{0}, host{0};
    for (const Probe& probe : plan.probes) {
        text += row(probe, width);
        device = std::max(device, probe.device_memory);
        host = std::max(host, probe.host_memory);
    }
    text += fmt::format("{} probes, at most {:.0f} s, {:.2f} GiB of GPU memory and {:.2f} GiB of host memory at once\n",
                        plan.probes.size(), plan.seconds, in_gib(device), in_gib(host));
    for (const Probe& probe : plan.too_big)
        text += fmt::format("not run, too large for this machine: {}\n", probe.name);
    for (const Probe& probe : plan.cut) text += fmt::format("not run, beyond --budget: {}\n", probe.name);
    return text;
}

}  // namespace headroom
