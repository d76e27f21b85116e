// SPDX-License-Identifier: Apache-2.0
#include "planner/commands/time_basis.hpp"

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
    const auto typed = arguments.get("calibration");
    basis.calibration = typed ? named(*typed) : calibration_for(cluster);
    return basis;
}

}  // namespace headroom
