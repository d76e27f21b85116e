// SPDX-License-Identifier: Apache-2.0
#include "planner/plan.hpp"

#include "configs/load.hpp"
#include "planner/commands/commands.hpp"
#include "planner/commands/output.hpp"
#include "planner/commands/request.hpp"
#include "planner/commands/time_basis.hpp"
#include "planner/report.hpp"

namespace headroom {

namespace {

Synopsis synopsis() {
    FlagGroup result = output_flags();
    result.flags.push_back({"require-fit", "", "end with status 3 when it does not fit"});
    return {
        "headroom plan",
        "--context TOKENS [flags]",
        "Tells whether one training configuration fits, device and host memory by part at the peak of a step, and how "
        "long the step takes.",
        {machine_flags(), recipe_flags(), time_flags(), result},
        {"headroom plan --method upipe --context 3M",
         "headroom plan --cluster h200 --nodes 2 --method usp --context 4M",
         "headroom plan --model ./my-model --context 512K --set tiling.mlp=off",
         "headroom plan --recipe run.yaml --format json -o plan.json --require-fit"},
        "Without --method the method is upipe. Exit status: 0 ok, 1 failure, 2 usage or bad input, 3 does not fit "
        "(with --require-fit)."};
}

std::optional<MaxContext> longest_context_of(const Request& request, Settings said) {
    said.context.reset();
    try {
        return max_context(said, published_recipe(said.method.value()), request.model, request.cluster);
    } catch (const Error&) {
        return std::nullopt;  // only a remark beside the plan
    }
}

}  // namespace

ExitCode plan_command(const Words& words) {
    if (wants_help(words)) {
        write({}, help_text(synopsis()));
        return ExitCode::ok;
    }
    const Arguments arguments(synopsis(), words);
    const Output output = read_output(arguments);
    const Request request = read_request(arguments);
    Settings said = request.said;
    if (!said.method) said.method = Method::upipe;
    if (!said.context) {
        throw Error("no context is given", "--context", "add e.g. --context 1M, or ask headroom max-context");
    }
    const Recipe recipe = resolve(request, said);
    const Plan plan = make_plan(request.model, request.cluster, recipe, read_time_basis(arguments, request.cluster));
    switch (output.format) {
        case Format::text: {
            std::optional<MaxContext> longest;
            if (!plan.fits) longest = longest_context_of(request, said);
            write(output, plan_text(plan, output.style, longest));
            break;
        }
        case Format::json:
            write(output, plan_json(plan));
            break;
        case Format::csv:
            write(output, plan_csv(plan));
            break;
    }
    return arguments.has("require-fit") && !plan.fits ? ExitCode::does_not_fit : ExitCode::ok;
}

}  // namespace headroom
