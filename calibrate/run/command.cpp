// SPDX-License-Identifier: Apache-2.0
#include "calibrate/run/command.hpp"

#include <fmt/core.h>

#include "calibrate/calibrate.hpp"
#include "calibrate/host_facts.hpp"
#include "calibrate/interrupt.hpp"
#include "calibrate/probe_file.hpp"
#include "calibrate/run/compare.hpp"
#include "calibrate/run/report.hpp"
#include "configs/calibration.hpp"

namespace headroom {
namespace {

void say(const std::string& text) { fmt::print(stderr, "{}", text); }

Calibration calibration_of(const CalibrateOptions& options, const Cluster& cluster) {
    if (options.run.calibration.empty()) return calibration_for(cluster);
    return load_calibration(options.run.calibration);
}

/// What became of the cases.
struct Tally {
    int ok = 0, too_large = 0, failed = 0, invalid = 0, left_out = 0;

    void add(const std::string& status) {
        ++(status == "ok" || status == "predicted"                 ? ok
           : status == "out_of_memory" || status == "does_not_fit" ? too_large
           : status == "invalid"                                   ? invalid
           : status == "left_out"                                  ? left_out
                                                                   : failed);
    }
    ExitCode code() const {
        if (failed > 0) return ExitCode::failure;
        if (too_large > 0) return ExitCode::does_not_fit;
        if (ok == 0 && invalid > 0) return ExitCode::usage;
        return ExitCode::ok;
    }
};

std::string explained(const Error& error) {
    std::string text = error.what();
    if (!error.where().empty()) text += fmt::format(" ({})", error.where());
    if (!error.hint().empty()) text += fmt::format("; {}", error.hint());
    return text;
}

/// Seconds a case takes, roughly: preparation, warm-up, timed and instrumented steps.
double expected_seconds(const CasePlan& plan, const RunProtocol& protocol) {
    const double step = plan.slowest().step.seconds.value;
    constexpr double preparation = 5;
    return preparation + std::max(protocol.warm_seconds, step) + step + (protocol.steps + 1) * step;
}

Json run_one(const RunCase& one, const Calibration& calibration, RunFleet* fleet, const RunProtocol& protocol,
             double left) {
    if (!one.invalid.empty()) return failed_record(one, "invalid", one.invalid);
    try {
        const CasePlan plan = predict_case(one, calibration);
        if (fleet == nullptr) return prediction_record(plan);
        if (expected_seconds(plan, protocol) > left)
            return failed_record(one, "left_out", "it would end beyond --budget");
        Json record = run_record(plan, fleet->run(plan, protocol));
        record["finished"] = utc_now();
        return record;
    } catch (const Error& error) {
        if (error.exit_code() == ExitCode::interrupted) throw;
        return failed_record(one, error.exit_code() == ExitCode::does_not_fit ? "out_of_memory" : "failed",
                             explained(error));
    }
}

std::size_t name_width(const std::vector<RunCase>& cases) {
    std::size_t width = least_name_width;
    for (const RunCase& one : cases) width = std::max(width, one.name.size());
    return width;
}

ExitCode compare(const CalibrateOptions& options) {
    const std::vector<Json> records = read_run_file(options.run.compare);
    std::size_t width = least_name_width;
    for (const Json& record : records) width = std::max(width, record.at("name").get<std::string>().size());
    std::string text = table_heading(width), parts;
    for (const Json& record : records) {
        const bool measured = record.at("status") == "ok";
        const Json again =
            measured ? predicted_again(record, calibration_of(options, case_of(record).cluster)) : record;
        text += table_line(again, width);
        if (measured) parts += "\n" + record.at("name").get<std::string>() + "\n" + parts_text(again);
    }
    fmt::print("{}{}", text, parts);
    return ExitCode::ok;
}

}  // namespace

ExitCode run_runs(const CalibrateOptions& options, const std::vector<std::string>& words,
                  const std::function<std::unique_ptr<RunFleet>(int)>& open) {
    if (!options.run.compare.empty()) return compare(options);
    const std::vector<RunCase> cases = plan_cases(options.run);
    const Calibration calibration = calibration_of(options, cases.front().cluster);
    const std::size_t width = name_width(cases);
    if (options.dry_run) {
        fmt::print("{}", table_heading(width));
        Tally tally;
        for (const RunCase& one : cases) {
            const Json record = run_one(one, calibration, nullptr, {}, 0);
            tally.add(record["status"]);
            fmt::print("{}", table_line(record, width));
        }
        return tally.code();
    }
    const std::unique_ptr<RunFleet> fleet = open(cases.front().cluster.gpus());
    ProbeWriter writer = options.output.empty() ? ProbeWriter::standard_output() : ProbeWriter::create(options.output);
    writer.write(with_command(fleet->provenance(), words));
    const std::atomic<bool>& interrupted = catch_interrupts();
    const RunProtocol protocol{options.run.steps, options.run.warm_seconds, &interrupted};
    const double begin = monotonic_seconds();
    Tally tally;
    say(table_heading(width));
    for (const RunCase& one : cases) {
        const double left =
            options.selection.budget > 0 ? options.selection.budget - (monotonic_seconds() - begin) : 1e9;
        Json record;
        try {
            if (interrupted) throw Error("interrupted", "", "", ExitCode::interrupted);
            record = run_one(one, calibration, fleet.get(), protocol, left);
        } catch (const Error&) {
            say("interrupted: what is written stays\n");
            return ExitCode::interrupted;
        }
        writer.write(record);
        tally.add(record["status"]);
        say(table_line(record, width) + parts_text(record));
        if (!fleet->usable()) {
            say("the GPUs answer no more: what is written stays\n");
            return ExitCode::failure;
        }
    }
    say(fmt::format("{} ok, {} out of memory, {} failed, {} invalid, {} beyond --budget\n", tally.ok, tally.too_large,
                    tally.failed, tally.invalid, tally.left_out));
    return tally.code();
}

}  // namespace headroom
