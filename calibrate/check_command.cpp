// SPDX-License-Identifier: Apache-2.0
#include "calibrate/check_command.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <optional>

#include "calibrate/check_suite.hpp"
#include "calibrate/host_device.hpp"
#include "calibrate/probe_file.hpp"

namespace headroom {
namespace {

/// All suites with the cases that are asked for, without those that have none left.
std::vector<CheckSuite> selected_suites(const Selection& selection, const CheckMachine& machine,
                                        const std::vector<int>& ranks) {
    std::vector<CheckSuite> suites;
    for (CheckSuite& suite : check_suites(machine, ranks)) {
        std::erase_if(suite.cases, [&](const CheckCase& one) {
            if (!selection.only.empty() && !matches_any(one.name, selection.only)) return true;
            return matches_any(one.name, selection.skip);
        });
        if (!suite.cases.empty()) suites.push_back(std::move(suite));
    }
    if (suites.empty()) {
        throw Error("no case is left", "headroom calibrate check", "headroom calibrate check --list names them");
    }
    return suites;
}

struct HostCheckRanks : CheckRanks {
    HostCheckRanks(int ulysses, int ring) : ranks(ulysses, ring) {}
    std::unique_ptr<ComputeDevice> device(int rank) override { return std::make_unique<HostDevice>(ranks, rank); }
    void give_up() override { ranks.give_up(); }
    std::string place() const override { return "threads"; }
    HostRanks ranks;
};

struct Outcome {
    std::string place = "-";
    std::optional<CheckedCase> checked;
    std::string failure;
};

Outcome run_case(CheckSuite& suite, const CheckCase& one, const CheckMachine& machine) {
    Outcome outcome;
    try {
        const auto ranks = machine.open(one.work.recipe.ulysses, one.work.recipe.ring);
        outcome.place = ranks->place();
        outcome.checked = suite.run(
            one, [&](int rank) { return ranks->device(rank); }, [&] { ranks->give_up(); });
    } catch (const Error& error) {
        outcome.failure = error.where().empty() ? error.what() : fmt::format("{} ({})", error.what(), error.where());
    }
    return outcome;
}

/// The bound of each result, in the order of a suite's results.
std::vector<double> bounds_of(const CheckedCase& alone, double smallest) {
    std::vector<double> bounds;
    for (const CheckedResult& result : alone.results) bounds.push_back(std::max(3 * result.error, smallest));
    return bounds;
}

/// Names of the results beyond their bounds, and of those that are no numbers.
std::string wrong_results(const CheckedCase& checked, const std::vector<double>& bounds) {
    std::string names;
    for (std::size_t i = 0; i < bounds.size(); ++i) {
        if (checked.results[i].error <= bounds[i]) continue;
        names += (names.empty() ? "" : ", ") + checked.results[i].name;
    }
    return names;
}

std::string status_of(const Outcome& outcome, const std::vector<double>& bounds) {
    if (!outcome.checked) return outcome.failure;
    const std::string names = wrong_results(*outcome.checked, bounds);
    return names.empty() ? "ok" : "wrong: " + names;
}

Json record_of(const CheckSuite& suite, const CheckCase& one, const Outcome& outcome, const std::string& status,
               const std::vector<double>& bounds) {
    const Recipe& recipe = one.work.recipe;
    Json record{{"record", "check"},         {"of", suite.key},
                {"name", one.name},          {"ranks", recipe.context_parallel()},
                {"ulysses", recipe.ulysses}, {"ring", recipe.ring},
                {"place", outcome.place},    {"status", status}};
    if (!outcome.checked) return record;
    record["peak_bytes"] = outcome.checked->peak_bytes;
    for (std::size_t i = 0; i < bounds.size(); ++i) {
        const CheckedResult& result = outcome.checked->results[i];
        record["relative_errors"][result.key] = std::isfinite(result.error) ? Json(result.error) : Json(nullptr);
        record["bounds"][result.key] = bounds[i];
    }
    return record;
}

std::string line_of(const CheckSuite& suite, std::size_t width, const CheckCase& one, const Outcome& outcome,
                    const std::string& status) {
    std::string line =
        fmt::format("{:<{}} {:>2}  {:<7}", one.name, width, one.work.recipe.context_parallel(), outcome.place);
    for (const CheckSuite::Column& column : suite.columns) {
        line += outcome.checked ? fmt::format(" {:>7.0e}", column.error(*outcome.checked)) : fmt::format(" {:>7}", "-");
    }
    return line + "  " + status + "\n";
}

std::size_t name_width(const std::vector<CheckCase>& cases) {
    std::size_t width = 24;
    for (const CheckCase& one : cases) width = std::max(width, one.name.size());
    return width;
}

/// Runs and prints the cases of one suite. Returns how many are wrong.
std::size_t run_suite(CheckSuite& suite, const CheckMachine& machine, std::optional<ProbeWriter>& writer) {
    const Outcome alone = run_case(suite, suite.alone, machine);
    if (!alone.checked) throw Error(alone.failure, "headroom calibrate check", "", ExitCode::failure);
    const std::vector<double> bounds = bounds_of(*alone.checked, machine.smallest_bound);

    const std::size_t width = name_width(suite.cases);
    fmt::print("{}\n\n{:<{}} {:>2}  {:<7}", suite.title, "case", width, "on", "ranks");
    for (const CheckSuite::Column& column : suite.columns) fmt::print(" {:>7}", column.heading);
    fmt::print("\n");
    std::size_t wrong = 0;
    for (const CheckCase& one : suite.cases) {
        const Outcome outcome = one.name == suite.alone.name ? alone : run_case(suite, one, machine);
        const std::string status = status_of(outcome, bounds);
        if (status != "ok") ++wrong;
        fmt::print("{}", line_of(suite, width, one, outcome, status));
        std::fflush(stdout);
        if (writer) writer->write(record_of(suite, one, outcome, status, bounds));
    }
    fmt::print("\n{} of {} cases compute {}\n", suite.cases.size() - wrong, suite.cases.size(), suite.subject);
    return wrong;
}

}  // namespace

CheckMachine check_on_host() {
    CheckMachine machine;
    machine.element = 4;
    machine.smallest_bound = 3e-6;  // sums of some hundred float terms, each 2^-24 off
    machine.ranks = {1, 2, 4};
    machine.model.layers = 1;
    machine.model.hidden = 32;
    machine.model.heads = 16;
    machine.model.kv_heads = 8;
    machine.model.head_dim = 8;
    machine.model.ffn = machine.model.vocabulary = 8;
    machine.context = 192;
    machine.step_model.layers = 3;
    machine.step_model.hidden = 64;
    machine.step_model.heads = 8;
    machine.step_model.kv_heads = 4;
    machine.step_model.head_dim = 8;
    machine.step_model.ffn = 96;
    machine.step_model.vocabulary = 112;
    machine.step_context = 64;
    machine.open = [](int ulysses, int ring) { return std::make_unique<HostCheckRanks>(ulysses, ring); };
    machine.provenance = [] { return Json{{"record", "provenance"}, {"device", "plain arithmetic on the host"}}; };
    return machine;
}

ExitCode run_check(const CalibrateOptions& options, const CheckMachine& machine) {
    std::vector<CheckSuite> suites =
        selected_suites(options.selection, machine, options.check.ranks.empty() ? machine.ranks : options.check.ranks);
    if (options.list) {
        for (const CheckSuite& suite : suites) {
            const std::size_t width = name_width(suite.cases) + 2;
            for (const CheckCase& one : suite.cases) {
                fmt::print("{:<{}} {:>2}\n", one.name, width, one.work.recipe.context_parallel());
            }
        }
        return ExitCode::ok;
    }
    std::optional<ProbeWriter> writer;
    if (!options.output.empty()) {
        writer.emplace(ProbeWriter::create(options.output));
        writer->write(machine.provenance());
    }
    std::size_t wrong = 0;
    for (std::size_t i = 0; i < suites.size(); ++i) {
        if (i > 0) fmt::print("\n");
        wrong += run_suite(suites[i], machine, writer);
    }
    if (wrong == 0) return ExitCode::ok;
    fmt::print("A result is wrong above three times the error of one rank alone.\n");
    return ExitCode::failure;
}

}  // namespace headroom
