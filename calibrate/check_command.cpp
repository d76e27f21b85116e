// SPDX-License-Identifier: Apache-2.0
#include "calibrate/check_command.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <optional>

#include "calibrate/host_device.hpp"
#include "calibrate/probe_file.hpp"

namespace headroom {
namespace {

std::vector<CheckCase> selected_cases(const Selection& selection, const CheckMachine& machine,
                                      const std::vector<int>& ranks) {
    std::vector<CheckCase> cases;
    for (const int count : ranks) {
        for (CheckCase& one : check_cases(count, machine.model, machine.context, machine.element)) {
            if (!selection.only.empty() && !matches_any(one.name, selection.only)) continue;
            if (!matches_any(one.name, selection.skip)) cases.push_back(std::move(one));
        }
    }
    if (cases.empty()) {
        throw Error("no case is left", "headroom calibrate check", "headroom calibrate check --list names them");
    }
    return cases;
}

struct Column {
    const char* name;
    const char* key;
    double CheckErrors::*error;
};
constexpr std::array<Column, 6> columns{{{"output", "output", &CheckErrors::output},
                                         {"dx", "input_gradient", &CheckErrors::input_gradient},
                                         {"dWq", "query_weight_gradient", &CheckErrors::query_weight},
                                         {"dWk", "key_weight_gradient", &CheckErrors::key_weight},
                                         {"dWv", "value_weight_gradient", &CheckErrors::value_weight},
                                         {"dWo", "output_weight_gradient", &CheckErrors::output_weight}}};

struct HostCheckRanks : CheckRanks {
    HostCheckRanks(int ulysses, int ring) : ranks(ulysses, ring) {}
    std::unique_ptr<ComputeDevice> device(int rank) override { return std::make_unique<HostDevice>(ranks, rank); }
    void give_up() override { ranks.give_up(); }
    std::string place() const override { return "threads"; }
    HostRanks ranks;
};

struct Outcome {
    std::string place = "-";
    std::optional<CheckErrors> errors;
    std::string failure;
};

Outcome run_case(const CheckCase& one, const CheckReference& reference, const CheckMachine& machine) {
    Outcome outcome;
    try {
        const auto ranks = machine.open(one.work.recipe.ulysses, one.work.recipe.ring);
        outcome.place = ranks->place();
        outcome.errors = check(
            one, reference, [&](int rank) { return ranks->device(rank); }, [&] { ranks->give_up(); });
    } catch (const Error& error) {
        outcome.failure = error.where().empty() ? error.what() : fmt::format("{} ({})", error.what(), error.where());
    }
    return outcome;
}

/// The bound of each result.
using Bounds = std::array<double, columns.size()>;

Bounds bounds_of(const CheckErrors& alone, double smallest) {
    Bounds bounds{};
    for (std::size_t i = 0; i < columns.size(); ++i) bounds[i] = std::max(3 * alone.*columns[i].error, smallest);
    return bounds;
}

/// Names of the results beyond their bounds, and of those that are no numbers.
std::string wrong_results(const CheckErrors& errors, const Bounds& bounds) {
    std::string names;
    for (std::size_t i = 0; i < columns.size(); ++i) {
        if (errors.*columns[i].error <= bounds[i]) continue;
        names += (names.empty() ? "" : ", ") + std::string(columns[i].name);
    }
    return names;
}

Json record_of(const CheckCase& one, const Outcome& outcome, const std::string& status, const Bounds& bounds) {
    const Recipe& recipe = one.work.recipe;
    Json record{{"record", "check"},         {"name", one.name},    {"ranks", recipe.context_parallel()},
                {"ulysses", recipe.ulysses}, {"ring", recipe.ring}, {"place", outcome.place},
                {"status", status}};
    if (!outcome.errors) return record;
    record["peak_bytes"] = outcome.errors->peak_bytes;
    for (std::size_t i = 0; i < columns.size(); ++i) {
        const double error = *outcome.errors.*columns[i].error;
        record["relative_errors"][columns[i].key] = std::isfinite(error) ? Json(error) : Json(nullptr);
        record["bounds"][columns[i].key] = bounds[i];
    }
    return record;
}

std::string line_of(const CheckCase& one, const Outcome& outcome, const std::string& status) {
    std::string line = fmt::format("{:<24} {:>2}  {:<7}", one.name, one.work.recipe.context_parallel(), outcome.place);
    for (const Column& column : columns) {
        line += outcome.errors ? fmt::format(" {:>7.0e}", *outcome.errors.*column.error) : fmt::format(" {:>7}", "-");
    }
    return line + "  " + status + "\n";
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
    machine.open = [](int ulysses, int ring) { return std::make_unique<HostCheckRanks>(ulysses, ring); };
    machine.provenance = [] { return Json{{"record", "provenance"}, {"device", "plain arithmetic on the host"}}; };
    return machine;
}

ExitCode run_check(const CalibrateOptions& options, const CheckMachine& machine) {
    const std::vector<CheckCase> cases =
        selected_cases(options.selection, machine, options.check.ranks.empty() ? machine.ranks : options.check.ranks);
    if (options.list) {
        for (const CheckCase& one : cases) fmt::print("{:<26} {:>2}\n", one.name, one.work.recipe.context_parallel());
        return ExitCode::ok;
    }
    std::optional<ProbeWriter> writer;
    if (!options.output.empty()) {
        writer.emplace(ProbeWriter::create(options.output));
        writer->write(machine.provenance());
    }
    const CheckReference reference(machine.model, machine.context);
    const CheckCase alone = check_cases(1, machine.model, machine.context, machine.element).front();
    const Outcome local = run_case(alone, reference, machine);
    if (!local.errors) throw Error(local.failure, "headroom calibrate check", "", ExitCode::failure);
    const Bounds bounds = bounds_of(*local.errors, machine.smallest_bound);

    fmt::print("Relative error against attention over {} tokens in double precision, {} heads on {} KV heads of {}\n\n",
               machine.context, machine.model.heads, machine.model.kv_heads, machine.model.head_dim);
    fmt::print("{:<24} {:>2}  {:<7}", "case", "on", "ranks");
    for (const Column& column : columns) fmt::print(" {:>7}", column.name);
    fmt::print("\n");
    std::size_t wrong = 0;
    for (const CheckCase& one : cases) {
        const Outcome outcome = run_case(one, reference, machine);
        const std::string names = outcome.errors ? wrong_results(*outcome.errors, bounds) : "";
        const std::string status = !outcome.errors ? outcome.failure : names.empty() ? "ok" : "wrong: " + names;
        if (status != "ok") ++wrong;
        fmt::print("{}", line_of(one, outcome, status));
        std::fflush(stdout);
        if (writer) writer->write(record_of(one, outcome, status, bounds));
    }
    fmt::print("\n{} of {} cases compute attention and its gradients\n", cases.size() - wrong, cases.size());
    if (wrong == 0) return ExitCode::ok;
    fmt::print("A result is wrong above three times the error of one rank alone.\n");
    return ExitCode::failure;
}

}  // namespace headroom
