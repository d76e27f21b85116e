// SPDX-License-Identifier: Apache-2.0
// A case's prediction beside its measurement: as a record and as text.
#pragma once

#include <string>

#include "calibrate/run/fleet.hpp"

namespace headroom {

/// {"record": "run", ...} with the prediction alone.
Json prediction_record(const CasePlan& plan);
/// The same with what was measured, and signed errors (measured over predicted, less one).
Json run_record(const CasePlan& plan, const CaseMeasurement& measured);
/// A case that was not measured, and why.
Json failed_record(const RunCase& one, const std::string& status, const std::string& reason);

/// One line for the table over all cases, as wide as `heading`.
/// `width` is that of the widest name; a narrow table has 80 columns.
inline constexpr std::size_t least_name_width = 30;
std::string table_heading(std::size_t width = least_name_width);
std::string table_line(const Json& record, std::size_t width = least_name_width);
/// The parts of one case, one a line, and how its loss went.
std::string parts_text(const Json& record);

}  // namespace headroom
