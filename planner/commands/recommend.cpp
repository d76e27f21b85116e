// SPDX-License-Identifier: Apache-2.0
#include "planner/recommend.hpp"

#include <fmt/core.h>

#include <charconv>

#include "configs/load.hpp"
#include "planner/commands/command_line.hpp"
#include "planner/commands/commands.hpp"
#include "planner/commands/output.hpp"
#include "planner/commands/request.hpp"
#include "planner/commands/search_flags.hpp"
#include "planner/commands/time_basis.hpp"
#include "planner/report_recommend.hpp"

namespace headroom {

namespace {

Synopsis synopsis() {
    FlagGroup search{"Search",
                     {{"longest", "", "the recipe that reaches furthest, instead of the fastest at --context"},
                      {"step", "TOKENS", "with --longest: contexts tried are multiples of this (default 128K)"},
                      {"margin", "PERCENT", "of a GPU's usable memory that stays free (default 2%)"},
                      {"host-margin", "PERCENT", "of a node's usable host memory that stays free (default 5%)"},
                      {"tie", "PERCENT", "speeds this close count as equal (default 0.5%)"},
                      {"top", "N", "how many recipes, each of other method, code or degrees (default 5)"},
                      {"front", "", "also the fastest recipe at every doubling of the context"},
                      {"exhaustive", "", "evaluate every candidate: the same answer, slowly"}}};
    FlagGroup recipe = recipe_flags({"method"});
    recipe.flags.insert(recipe.flags.begin(), {"method", "METHODS", "one method or a comma list (default: all six)"});
    FlagGroup result = output_flags();
    result.flags.push_back({"require-fit", "", "end with status 3 when no recipe fits"});
    return {"headroom recommend",
            "--context TOKENS | --longest [flags]",
            "Searches methods, degrees, chunks, tilings, checkpoints, offloads, sharding and batch for the fastest "
            "recipe that fits with a margin, and says why. What a flag fixes is not searched.",
            {machine_flags(), recipe, time_flags(), search, result},
            {"headroom recommend --context 3M", "headroom recommend --longest --step 1M",
             "headroom recommend --model qwen3-32b --nodes 2 --context 2M --method upipe,usp",
             "headroom recommend --context 1M --set offload.optimizer=false --format json"},
            "Implementations are those that are shipped and whose reach was confirmed; --implementation alst or lean "
            "searches "
            "another. Exit status: 0 "
            "ok, 1 failure, 2 usage or bad input, 3 no recipe fits (with --require-fit)."};
}

Question read_question(const Arguments& arguments) {
    const Request request = read_request(arguments, {"method"});
    Question question;
    question.said = request.said;
    if (const auto list = arguments.get("method")) {
        if (said_by_set(request, "method")) {
            throw Error("--method and --set both name a method", request.origins.at("method"), "keep one of them");
        }
        question.methods = read_methods(*list);
        question.said.method.reset();
        if (question.methods.size() == 1) question.said.method = question.methods.front();
    }
    question.model = request.model;
    question.cluster = request.cluster;
    question.bench_flags = typed_flags(arguments, {"model", "cluster", "nodes", "gpus", "calibration", "mfu"});
    question.basis = read_time_basis(arguments, request.cluster);
    question.published = all_published_recipes();
    question.search.exhaustive = arguments.has("exhaustive");
    question.front = arguments.has("front");
    question.margin.device = read_percent(arguments, "margin", question.margin.device);
    question.margin.host = read_percent(arguments, "host-margin", question.margin.host);
    question.search.tie = read_percent(arguments, "tie", question.search.tie);
    constexpr int most_recipes = 100;
    if (const auto top = arguments.get("top")) {
        question.search.families = static_cast<std::size_t>(parse_count(*top, "--top", most_recipes));
    }
    if (const auto step = arguments.get("step")) question.step = parse_tokens(*step, "--step");
    const bool longest = arguments.has("longest");
    if (longest && question.said.context) {
        throw Error("--longest looks for the context itself", "--context", "leave out one of them");
    }
    if (!longest && !question.said.context) {
        throw Error("no context is given", "--context", "add e.g. --context 1M, or --longest");
    }
    if (!longest && arguments.has("step") && !question.front) {
        throw Error("--step belongs to --longest or --front", "--step", "leave it out, or add --longest");
    }
    return question;
}

/// No candidate is valid: the rule that the first one breaks, where it was said.
void refuse_impossible(const Arguments& arguments, const Recommendations& answer) {
    if (answer.considered > 0 || !answer.near_misses.empty()) return;
    pointing_to_origin(read_request(arguments, {"method"}), [&] {
        if (answer.refusal) throw Error(*answer.refusal);
        throw Error("no recipe is possible with these settings", "headroom recommend", "leave out what fixes them");
    });
}

}  // namespace

Synopsis recommend_synopsis() { return synopsis(); }

ExitCode recommend_command(const Words& words) {
    if (wants_help(words)) {
        write({}, help_text(synopsis()));
        return ExitCode::ok;
    }
    const Arguments arguments(synopsis(), words);
    const Output output = read_output(arguments);
    const Recommendations answer = recommend(read_question(arguments));
    refuse_impossible(arguments, answer);
    switch (output.format) {
        case Format::text:
            write(output, recommend_text(answer, output.style));
            break;
        case Format::json:
            write(output, recommend_json(answer));
            break;
        case Format::csv:
            write(output, recommend_csv(answer));
            break;
    }
    return arguments.has("require-fit") && answer.list.empty() ? ExitCode::does_not_fit : ExitCode::ok;
}

}  // namespace headroom
