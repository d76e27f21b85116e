// SPDX-License-Identifier: Apache-2.0
// Runs of another day beside the predictions of today.
#pragma once

#include <string>
#include <vector>

#include "calibrate/run/fleet.hpp"
#include "calibrate/run/report.hpp"

namespace headroom {

/// The records of a file that `headroom calibrate run` wrote. Throws Error with file:line for what is no such record;
/// an incomplete last line is left out.
std::vector<Json> read_run_file(const std::string& path);

/// The case of a record. Throws Error when its model or machine is not known here.
RunCase case_of(const Json& record);

/// The record with the predictions of this program and these constants in place of its own.
Json predicted_again(const Json& record, const Calibration& calibration);

}  // namespace headroom
