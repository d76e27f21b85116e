// SPDX-License-Identifier: Apache-2.0
#include "planner/commands/time_basis.hpp"

#include <fmt/core.h>

#include <algorithm>

#include "configs/calibration.hpp"
#include "models/error.hpp"

namespace headroom {

namespace {

Calibration named(const std::string& typed) {
    try {
        return load_calibration(typed);
    } catch (const Error& error) {
        const bool whole = error.where().empty() || error.where() == typed;
        throw Error(error.what(), whole ? "--calibration " + typed : error.where(), error.hint(), error.exit_code());
    }
}

bool architecture_is_known(const std::string& architecture) {
    const std::vector<std::string> names = builtin_calibrations();
    return std::any_of(names.begin(), names.end(),
                       [&](const std::string& name) { return load_calibration(name).architecture == architecture; });
}

}  // namespace

FlagGroup time_flags() {
    return {"Step time",
            {{"calibration", "NAME", "built-in constants or a YAML file (default: the cluster's own or the nearest)"},
             {"mfu", "COUNT", "attention in the MFU: causal, half the square (default), or full"}}};
}

TimeBasis read_time_basis(const Arguments& arguments, const Cluster& cluster) {
    TimeBasis basis;
    const std::string count = arguments.get("mfu").value_or("causal");
    const auto* found = std::find(attention_count_names.begin(), attention_count_names.end(), count);
    if (found == attention_count_names.end()) {
        throw Error(
            "unknown count '" + count + "'", "--mfu",
            suggestion(count, {attention_count_names.begin(), attention_count_names.end()}, "use causal or full"));
    }
    basis.count = static_cast<AttentionCount>(found - attention_count_names.begin());
    if (const auto typed = arguments.get("calibration")) {
        basis.calibration = named(*typed);
    } else if (architecture_is_known(cluster.architecture)) {
        basis.calibration = calibration_for(cluster);
    } else {
        basis.missing = fmt::format(
            "no calibration is built in for the architecture {} of {}; name one with --calibration (headroom show "
            "calibrations lists them)",
            cluster.architecture.empty() ? "(not said)" : cluster.architecture, cluster.name);
    }
    return basis;
}

}  // namespace headroom
