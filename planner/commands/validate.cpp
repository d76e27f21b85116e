// SPDX-License-Identifier: Apache-2.0
// headroom validate: predictions against the published results that are built in, or against a user's own.
#include "planner/validate.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <map>

#include "configs/calibration.hpp"
#include "configs/load.hpp"
#include "configs/measurement.hpp"
#include "planner/commands/commands.hpp"
#include "planner/commands/output.hpp"
#include "planner/commands/published.hpp"
#include "reports/table.hpp"

namespace headroom {

namespace {

Synopsis synopsis() {
    return {
        "headroom validate",
        "[flags]",
        "Compares predictions with measured results: wrong verdicts first, then signed errors, then what cannot be "
        "compared and why. Without --measurements, with the published results that are built in.",
        {{"Results to compare with",
          {{"measurements", "FILE", "your own results, YAML or CSV, one row a run (configs/measurements/README.md)"},
           {"source", "NAME", "one set of built-in results: upipe, fpdt, alst, arctic, ..."},
           {"method", "METHODS", "one method or a comma list (default: all)"},
           {"model", "NAME", "model of CSV rows that name none (default llama3-8b)"},
           {"cluster", "NAME", "cluster of CSV rows that name none (default h100-sxm-80gb)"}}},
         output_flags()},
        {"headroom validate", "headroom validate --source upipe --method ulysses,upipe",
         "headroom validate --measurements runs.csv --model ./my-model --format csv"},
        "A CSV needs the columns method and context; peak_allocated_gib, device_used_gb, max_context and status "
        "are some of the others. Rows that cannot be read are reported, and the rest goes on."};
}

std::vector<Method> methods_of(const Arguments& arguments) {
    std::vector<Method> methods;
    std::string list = arguments.get("method").value_or("");
    while (!list.empty()) {
        const std::size_t comma = std::min(list.find(','), list.size());
        Settings settings;
        try {
            set(settings, "method=" + list.substr(0, comma));
        } catch (const Error& error) {
            throw Error(error.what(), "--method", error.hint());
        }
        methods.push_back(*settings.method);
        list.erase(0, comma + 1);
    }
    return methods;
}

/// The calibration of each machine, or the nearest carried over; looked up once.
class Bases {
 public:
    TimeBasis operator()(const Cluster& cluster) {
        const auto [found, fresh] = bases_.try_emplace(cluster.name);
        if (fresh) found->second.calibration = calibration_for(cluster);
        return found->second;
    }

 private:
    std::map<std::string, TimeBasis> bases_;
};

MeasurementFile read_input(const Arguments& arguments) {
    const auto source = arguments.get("source");
    if (const auto path = arguments.get("measurements")) {
        if (source) throw Error("--source names built-in results", "--source", "leave it out with --measurements");
        return load_measurements(*path, arguments.get("model").value_or("llama3-8b"),
                                 arguments.get("cluster").value_or("h100-sxm-80gb"));
    }
    for (const char* flag : {"model", "cluster"}) {
        if (arguments.has(flag)) {
            throw Error(fmt::format("--{} is for CSV files", flag), fmt::format("--{}", flag),
                        "add --measurements FILE");
        }
    }
    MeasurementFile all;
    for (const std::string& set : builtin_measurement_sets()) {
        if (source && set != *source) continue;
        for (Measurement& run : builtin_measurements(set)) all.measurements.push_back(std::move(run));
    }
    if (all.measurements.empty()) {
        throw Error(fmt::format("no built-in results are called '{}'", *source), "--source",
                    suggestion(*source, builtin_measurement_sets(), "headroom validate compares with all of them"));
    }
    return all;
}

}  // namespace

Synopsis validate_synopsis() { return synopsis(); }

Validation validate_published() {
    std::vector<Measurement> measurements;
    for (const std::string& set : builtin_measurement_sets()) {
        for (Measurement& run : builtin_measurements(set)) measurements.push_back(std::move(run));
    }
    return validate(measurements, Bases());
}

ExitCode validate_command(const Words& words) {
    if (wants_help(words)) {
        write({}, help_text(synopsis()));
        return ExitCode::ok;
    }
    const Arguments arguments(synopsis(), words);
    const Output output = read_output(arguments);
    const std::vector<Method> methods = methods_of(arguments);
    MeasurementFile input = read_input(arguments);
    if (!methods.empty()) {
        std::erase_if(input.measurements, [&](const Measurement& run) {
            return !run.said.method || std::find(methods.begin(), methods.end(), *run.said.method) == methods.end();
        });
    }
    for (const std::string& warning : input.warnings) {
        fmt::print(stderr, "headroom: warning: {}\n", printable(warning));
    }
    if (input.measurements.empty()) {
        throw Error("no result is left to compare with", arguments.has("measurements") ? "--measurements" : "--method");
    }
    Validation validation = validate(input.measurements, Bases());
    validation.warnings = input.warnings;
    switch (output.format) {
        case Format::text:
            write(output, validation_text(validation));
            break;
        case Format::json:
            write(output, validation_json(validation));
            break;
        case Format::csv:
            write(output, validation_csv(validation));
            break;
    }
    return ExitCode::ok;
}

}  // namespace headroom
