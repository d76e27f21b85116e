// SPDX-License-Identifier: Apache-2.0
// Measured results as files: the published ones that are built in, users' own in the same YAML (strict), and CSV
// (forgiving). The schema is in configs/measurements/README.md.
#pragma once

#include <string>
#include <vector>

#include "models/measurement.hpp"

namespace headroom {

struct MeasurementFile {
    std::vector<Measurement> measurements;
    std::vector<std::string> warnings;  ///< columns that are ignored, rows that cannot be read; with file:line
};

/// Throws Error for a figure below 0.
void require_measurable(double value, const std::string& name, const std::string& where);
/// `peak_gib`, `step_seconds`, ...: a quantity and, for memory, its unit.
Metric parse_metric(const std::string& name, const std::string& where);

/// Names of the built-in sets: alst, arctic, ..., upipe.
std::vector<std::string> builtin_measurement_sets();
std::vector<Measurement> builtin_measurements(const std::string& set);
std::vector<Measurement> read_measurements(const std::string& yaml, const std::string& file);
/// Rows without a model or a cluster take these.
MeasurementFile read_measurement_csv(const std::string& csv, const std::string& file, const std::string& model,
                                     const std::string& cluster);
/// A YAML or a CSV file, told apart by its ending.
MeasurementFile load_measurements(const std::string& path, const std::string& model, const std::string& cluster);

/// Sets the size of a job: whole nodes, or a part of one.
void set_job_size(Cluster& cluster, int nodes, int gpus, const std::string& where);

/// Records of an RFC 4180 text with the line each begins on; a byte order mark and CRLF are accepted.
struct CsvRecord {
    int line = 0;
    std::vector<std::string> fields;
};
std::vector<CsvRecord> parse_csv(const std::string& text, const std::string& file);

}  // namespace headroom
