// SPDX-License-Identifier: Apache-2.0
#include "planner/plan.hpp"

#include <fmt/core.h>

#include "configs/load.hpp"
#include "configs/sizes.hpp"
#include "planner/cheapest_change.hpp"
#include "planner/commands/command_line.hpp"
#include "planner/commands/commands.hpp"
#include "planner/commands/output.hpp"
#include "planner/commands/request.hpp"
#include "planner/commands/search_flags.hpp"
#include "planner/commands/time_basis.hpp"
#include "planner/report.hpp"
#include "planner/which_tensor.hpp"

namespace headroom {

namespace {

Synopsis synopsis() {
    FlagGroup result = output_flags();
    result.flags.push_back({"require-fit", "", "end with status 3 when it does not fit"});
    result.flags.push_back(
        {"which-tensor", "SIZE", "name the tensors of this size, e.g. of a failed allocation: 9.94GiB"});
    result.flags.push_back({"all", "", "with --which-tensor: every one of them, not the nearest 12"});
    return {
        "headroom plan",
        "--context TOKENS [flags]",
        "Tells whether one training configuration fits, device and host memory by part at the peak of a step, and how "
        "long the step takes.",
        {machine_flags(), recipe_flags(), time_flags(), result},
        {"headroom plan --method upipe --context 3M",
         "headroom plan --cluster h200 --nodes 2 --method usp --context 4M",
         "headroom plan --model ./my-model --context 512K --set tiling.mlp=off",
         "headroom plan --recipe run.yaml --format json -o plan.json --require-fit",
         "headroom plan --method ulysses --context 1M --which-tensor 1.00GiB"},
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

struct Size {
    std::string typed;
    Bytes bytes, rounding;
};

/// `9.94GiB`, or as PyTorch writes it, `9.94 GiB`: right to half of its last digit.
std::optional<Size> read_size(const Arguments& arguments) {
    auto typed = arguments.get("which-tensor");
    if (!typed) return std::nullopt;
    std::erase(*typed, ' ');
    const std::string flag = "--which-tensor";
    const Bytes bytes = parse_bytes(*typed, "size", flag);
    if (bytes.value < 1) throw Error("a tensor has at least one byte", flag, "write e.g. 9.94GiB");
    const std::size_t point = typed->find('.');
    const std::size_t unit = std::min(typed->find_first_not_of("0123456789._"), typed->size());
    if (unit == typed->size()) return Size{*typed, bytes, {0}};
    std::string last(point == std::string::npos || point > unit ? "1" : "0." + std::string(unit - point - 1, '0'));
    if (last.size() > 2) last.back() = '1';
    return Size{*typed, bytes, parse_bytes(last + typed->substr(unit), "size", flag) / 2};
}

/// Whole nodes, more than there are; degrees and sharding that were not said grow with them. 0 when none fit.
int fewest_nodes(const Request& request, const Settings& said) {
    constexpr int most_nodes = 64;
    Cluster cluster = request.cluster;
    for (cluster.nodes = request.cluster.nodes + 1; cluster.nodes <= most_nodes; ++cluster.nodes) {
        try {
            const Recipe recipe = resolve(said, published_recipe(said.method.value()), request.model, cluster);
            if (make_plan(request.model, cluster, recipe).fits) return cluster.nodes;
        } catch (const Error&) {
            continue;  // a number of ranks that heads or context cannot be split over
        }
    }
    return 0;
}

WayOut find_way_out(const Arguments& arguments, const Request& request, const Settings& said, const Plan& plan,
                    const TimeBasis& basis) {
    WayOut way_out{longest_context_of(request, said), fewest_nodes(request, said),
                   cheapest_change(plan, said, all_published_recipes(), basis), "headroom recommend"};
    for (const std::string& flag : typed_flags(arguments, {"model", "cluster", "nodes", "gpus", "calibration"})) {
        way_out.recommend += " " + flag;
    }
    way_out.recommend += fmt::format(" --context {}", plan.recipe.context.value);
    return way_out;
}

}  // namespace

Synopsis plan_synopsis() { return synopsis(); }

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
    const std::optional<Size> size = read_size(arguments);
    if (size && output.format == Format::csv) {
        throw Error("a row of CSV has no place for tensors", "--which-tensor", "use --format text or json");
    }
    if (arguments.has("all") && !size) {
        throw Error("--all belongs to --which-tensor", "--all", "leave it out, or name a size");
    }
    const Recipe recipe = resolve(request, said);
    const TimeBasis basis = read_time_basis(arguments, request.cluster);
    const Plan plan = make_plan(request.model, request.cluster, recipe, basis);
    std::optional<Suspects> suspects;
    if (size) suspects = which_tensor(request.model, request.cluster, recipe, size->bytes, size->rounding);
    switch (output.format) {
        case Format::text: {
            WayOut way_out;
            if (!plan.fits) way_out = find_way_out(arguments, request, said, plan, basis);
            std::string text = plan_text(plan, output.style, way_out);
            if (suspects) {
                text += "\n" + suspects_text(*suspects, size->typed, arguments.has("all"), output.style);
            }
            write(output, text);
            break;
        }
        case Format::json:
            write(output, plan_json(plan, suspects ? &*suspects : nullptr));
            break;
        case Format::csv:
            write(output, plan_csv(plan));
            break;
    }
    return arguments.has("require-fit") && !plan.fits ? ExitCode::does_not_fit : ExitCode::ok;
}

}  // namespace headroom
