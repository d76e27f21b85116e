// SPDX-License-Identifier: Apache-2.0
#include "planner/max_context.hpp"

#include <fmt/core.h>

#include <algorithm>

#include "configs/load.hpp"
#include "planner/commands/commands.hpp"
#include "planner/commands/output.hpp"
#include "planner/commands/request.hpp"
#include "planner/commands/search_flags.hpp"
#include "planner/commands/time_basis.hpp"
#include "planner/report.hpp"

namespace headroom {

namespace {

Synopsis synopsis() {
    FlagGroup recipe = recipe_flags({"method", "context"});
    recipe.flags.insert(recipe.flags.begin(), {"method", "METHODS", "one method or a comma list (default: all six)"});
    FlagGroup result = output_flags();
    result.flags.push_back({"require-fit", "", "end with status 3 when no method fits any context"});
    return {"headroom max-context",
            "[flags]",
            "Finds, for each method, the longest context that fits, names what stops it there, and predicts its step "
            "time.",
            {machine_flags(), recipe, time_flags(), result},
            {"headroom max-context", "headroom max-context --model qwen3-32b --nodes 2",
             "headroom max-context --method upipe,usp --gpus 4 --set tiling.mlp=off",
             "headroom max-context --model ./config.json --format csv -o contexts.csv"},
            "A context in a --recipe file is left aside. Exit status: 0 ok, 1 failure, 2 usage or bad input, 3 does "
            "not fit (with --require-fit)."};
}

std::vector<Method> all_methods() {
    std::vector<Method> methods;
    for (std::size_t i = 0; i < method_names.size(); ++i) methods.push_back(static_cast<Method>(i));
    return methods;
}

constexpr const char* no_context_here = "max-context looks for the context itself";
constexpr const char* use_plan = "leave it out, or use headroom plan";

/// Better than "unknown flag".
void refuse_context_flag(const Words& words) {
    for (const std::string& word : words) {
        if (word == "--context" || word.starts_with("--context=")) throw Error(no_context_here, "--context", use_plan);
    }
}

/// When nothing at all can run, the settings are at fault: the error that says which.
void refuse_impossible(const Request& request, const std::vector<MaxContext>& rows) {
    if (std::any_of(rows.begin(), rows.end(), [](const MaxContext& row) { return row.valid; })) return;
    Settings said = request.said;
    said.method = rows.front().method;
    // Any context will do: the rules broken here do not depend on it. This one is a multiple of what rings split.
    said.context = Tokens{2 * std::int64_t{request.cluster.gpus()} * 64 * kibi};
    resolve(request, said);
    throw Error(rows.front().limited_by, fmt::format("method {}", to_string(rows.front().method)),
                "headroom show methods says what each method needs");
}

}  // namespace

Synopsis max_context_synopsis() { return synopsis(); }

ExitCode max_context_command(const Words& words) {
    if (wants_help(words)) {
        write({}, help_text(synopsis()));
        return ExitCode::ok;
    }
    refuse_context_flag(words);
    const Arguments arguments(synopsis(), words);
    const Output output = read_output(arguments);
    const auto list = arguments.get("method");
    const std::vector<Method> named = list ? read_methods(*list) : std::vector<Method>{};

    Request request = read_request(arguments, {"method"});
    if (list && said_by_set(request, "method")) {
        throw Error("--method and --set both name a method", request.origins.at("method"), "keep one of them");
    }
    if (said_by_set(request, "context")) {
        throw Error(no_context_here, request.origins.at("context"), use_plan);
    }
    request.said.context.reset();
    std::vector<Method> methods = named;
    if (methods.empty() && request.said.method) methods.push_back(*request.said.method);
    if (methods.empty()) methods = all_methods();

    const TimeBasis basis = read_time_basis(arguments, request.cluster);
    std::vector<MaxContext> rows;
    for (const Method method : methods) {
        Settings said = request.said;
        said.method = method;
        rows.push_back(max_context(said, published_recipe(method), request.model, request.cluster, basis));
    }
    refuse_impossible(request, rows);

    const Bench bench{request.model, request.cluster};
    switch (output.format) {
        case Format::text:
            write(output, max_context_text(bench, rows, output.style));
            break;
        case Format::json:
            write(output, max_context_json(bench, rows));
            break;
        case Format::csv:
            write(output, max_context_csv(bench, rows));
            break;
    }
    const bool any = std::any_of(rows.begin(), rows.end(), [](const MaxContext& row) { return row.context.value > 0; });
    return arguments.has("require-fit") && !any ? ExitCode::does_not_fit : ExitCode::ok;
}

}  // namespace headroom
