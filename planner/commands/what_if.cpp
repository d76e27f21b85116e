// SPDX-License-Identifier: Apache-2.0
#include "planner/what_if.hpp"

#include <fmt/core.h>

#include <algorithm>

#include "configs/load.hpp"
#include "models/error.hpp"
#include "planner/commands/commands.hpp"
#include "planner/commands/output.hpp"
#include "planner/commands/request.hpp"
#include "planner/commands/search_flags.hpp"
#include "planner/commands/time_basis.hpp"
#include "planner/report_what_if.hpp"
#include "reports/table.hpp"

namespace headroom {

namespace {

Synopsis synopsis() {
    FlagGroup recipe = recipe_flags();
    recipe.title = "Base; what is not given is the method's published recipe";
    std::erase_if(recipe.flags, [](const Flag& flag) { return std::string(flag.name) == "set"; });
    FlagGroup changes{"Changes, each on top of the base",
                      {{"set", "KEY=VALUE", "all --set together are one variant; may be repeated", 0, true},
                       {"change", "KEY=VALUE", "a variant of its own; KEY=VALUE,KEY=VALUE for several keys", 0, true},
                       {"against", "FILE", "a variant from a recipe file; may be repeated", 0, true},
                       {"sensitivity", "", "also the constants and settings that move the answer most"}}};
    return {"headroom what-if",
            "--context TOKENS [flags] --set KEY=VALUE",
            "Compares a configuration with changed ones: every part of memory and time that moves, and the verdict. "
            "Keys are those of recipes, and model, cluster, nodes, gpus.",
            {machine_flags(), recipe, changes, time_flags(), output_flags()},
            {"headroom what-if --context 1M --set heads_per_stage=16",
             "headroom what-if --context 3M --change method=ulysses --change method=fpdt",
             "headroom what-if --recipe a.yaml --against b.yaml --format json",
             "headroom what-if --context 2M --nodes 2 --change nodes=4 --sensitivity"},
            "Exit status: 0 ok, 1 failure, 2 usage or bad input."};
}

bool is_machine_key(const std::string& key) {
    return key == "model" || key == "cluster" || key == "nodes" || key == "gpus";
}

/// An error is where the user wrote it, which need not be --set.
void apply_assignment(Settings& settings, const std::string& assignment, const std::string& place) {
    try {
        set(settings, assignment);
    } catch (const Error& error) {
        throw Error(error.what(), place, error.hint(), error.exit_code());
    }
}

/// One variant: machine keys reload what they name, recipe keys win over the base's.
Variant variant_of(const Request& base, const std::vector<std::string>& assignments, const std::string& place,
                   const Settings& file, const TimeBasis& basis, const Arguments& arguments) {
    Variant variant;
    Request changed = base;
    std::optional<std::string> nodes = base.machine.nodes;
    std::optional<std::string> gpus = base.machine.gpus;
    std::optional<std::string> cluster;
    Settings settings;
    for (const std::string& assignment : assignments) {
        const std::size_t equals = assignment.find('=');
        const std::string key = assignment.substr(0, equals);
        if (equals == std::string::npos) throw Error("a change needs a value", place, "write KEY=VALUE");
        const std::string value = assignment.substr(equals + 1);
        if (!is_machine_key(key)) {
            apply_assignment(settings, assignment, place);
            changed.origins[key] = place;
        }
        if (key == "model") changed.model = load_model(value);
        if (key == "cluster") cluster = value;
        if (key == "nodes") nodes = value;
        if (key == "gpus") gpus = value;
        variant.label += (variant.label.empty() ? "" : ", ") + assignment;
    }
    const bool resized = cluster || nodes != base.machine.nodes || gpus != base.machine.gpus;
    if (resized) {
        changed.cluster = load_cluster(cluster.value_or(*base.machine.cluster));
        resize(changed.cluster, nodes, gpus);
    }
    Settings said = layer(layer(settings, file), base.said);
    const TimeBasis times = cluster ? read_time_basis(arguments, changed.cluster) : basis;
    const bool chosen =
        settings.attention_kernel || file.attention_kernel || (base.said.attention_kernel && !base.kernel_instead);
    if (!chosen) said.attention_kernel = kernel_instead(times);
    // Another method or machine takes its own degrees and chunks, unless the change says them.
    if (settings.method && settings.method != base.said.method.value_or(Method::upipe)) {
        if (!settings.heads_per_stage) said.heads_per_stage = file.heads_per_stage;
        if (!settings.chunk_tokens) said.chunk_tokens = file.chunk_tokens;
        if (!settings.implementation) said.implementation = file.implementation;
    }
    if (!said.method) said.method = Method::upipe;
    const Recipe recipe = resolve(changed, said);
    variant.plan = make_plan(changed.model, changed.cluster, recipe, times);
    return variant;
}

template <class Work>
auto at(const std::string& place, Work work) {
    try {
        return work();
    } catch (const Error& error) {
        const bool placed = error.where().starts_with("--") || error.where().find(':') != std::string::npos;
        throw Error(error.what(), placed ? error.where() : place, error.hint(), error.exit_code());
    }
}

std::vector<Variant> read_variants(const Arguments& arguments, const Request& base, const TimeBasis& basis) {
    std::vector<Variant> variants;
    const auto add = [&](const std::vector<std::string>& assignments, const std::string& place, const Settings& file) {
        variants.push_back(at(place, [&] { return variant_of(base, assignments, place, file, basis, arguments); }));
    };
    if (const auto set = arguments.all("set"); !set.empty()) add(set, "--set " + printable(set.front()), {});
    for (const std::string& change : arguments.all("change")) {
        const std::string place = "--change " + printable(change);
        add(split_list(change, place), place, {});
    }
    for (const std::string& path : arguments.all("against")) {
        const Settings file = at("--against " + printable(path), [&] { return load_recipe(path); });
        add({}, "--against " + printable(path), file);
        variants.back().label = path;
    }
    return variants;
}

}  // namespace

Synopsis what_if_synopsis() { return synopsis(); }

ExitCode what_if_command(const Words& words) {
    if (wants_help(words)) {
        write({}, help_text(synopsis()));
        return ExitCode::ok;
    }
    const Arguments arguments(synopsis(), words);
    const Output output = read_output(arguments);
    const Request base = read_request(arguments, {"set"});
    Settings said = base.said;
    if (!said.method) said.method = Method::upipe;
    if (!said.context) throw Error("no context is given", "--context", "add e.g. --context 1M");
    const bool sensitivity = arguments.has("sensitivity");
    if (!arguments.has("set") && !arguments.has("change") && !arguments.has("against") && !sensitivity) {
        throw Error("nothing is changed", "headroom what-if", "add --set, --change, --against or --sensitivity");
    }
    const TimeBasis basis = read_time_basis(arguments, base.cluster);
    WhatIf comparison;
    comparison.base = make_plan(base.model, base.cluster, resolve(base, said), basis);
    comparison.variants = read_variants(arguments, base, basis);
    std::vector<Influence> moved;
    if (sensitivity) {
        if (!comparison.base.step) {
            throw Error("without a step time there is no sensitivity", "--sensitivity", "name a --calibration");
        }
        moved = influences(comparison.base, *basis.calibration);
    }
    switch (output.format) {
        case Format::text:
            write(output, what_if_text(comparison, moved, output.style));
            break;
        case Format::json:
            write(output, what_if_json(comparison, moved));
            break;
        case Format::csv:
            write(output, what_if_csv(comparison));
            break;
    }
    return ExitCode::ok;
}

}  // namespace headroom
