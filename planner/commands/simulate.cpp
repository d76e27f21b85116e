// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <sstream>

#include "configs/load.hpp"
#include "planner/commands/commands.hpp"
#include "planner/commands/output.hpp"
#include "planner/commands/request.hpp"
#include "planner/commands/time_basis.hpp"
#include "planner/report.hpp"
#include "planner/simulation.hpp"

namespace headroom {

namespace {

constexpr int most_layers = 1 << 20;

Synopsis synopsis() {
    FlagGroup result = output_flags();
    result.flags.push_back(
        {"trace", "FILE", "also write the timeline as Chrome trace JSON (ui.perfetto.dev opens it)"});
    result.flags.push_back({"layers", "N", "blocks in the trace, of forward and of backward each (default 1)"});
    return {
        "headroom simulate",
        "--context TOKENS [flags]",
        "Plays one training step op by op on the streams of the slowest rank: where the time goes, by part, by "
        "phase, by block and by operation.",
        {machine_flags(), recipe_flags(), time_flags(), result},
        {"headroom simulate --method upipe --context 1M", "headroom simulate --context 128K --trace step.json",
         "headroom simulate --method fpdt --context 512K --trace step.json --layers 2",
         "headroom simulate --cluster a100-sxm-80gb --attention-kernel fa2 --context 64K"},
        "Without --method the method is upipe. The trace has one track per stream, counters for GPU and host memory, "
        "and the loss and the optimizer in full. --format csv lists the operations."};
}

/// Blocks to show, and where to.
struct TraceRequest {
    std::string path;  ///< empty: none
    std::int64_t layers = 1;
};

TraceRequest read_trace_request(const Arguments& arguments, const Output& output) {
    TraceRequest request;
    if (const auto path = arguments.get("trace")) {
        if (*path == "-") throw Error("the trace needs a file", "--trace", "write e.g. --trace step.json");
        check_path(*path, "--trace");
        if (*path == output.path) throw Error("--trace and --output name one file", "--trace", "give it its own");
        request.path = *path;
    }
    if (const auto layers = arguments.get("layers")) {
        if (request.path.empty()) throw Error("--layers is for a trace", "--layers", "add --trace FILE");
        request.layers = parse_count(*layers, "--layers", most_layers);
    }
    return request;
}

}  // namespace

ExitCode simulate_command(const Words& words) {
    if (wants_help(words)) {
        write({}, help_text(synopsis()));
        return ExitCode::ok;
    }
    const Arguments arguments(synopsis(), words);
    const Output output = read_output(arguments);
    const TraceRequest trace = read_trace_request(arguments, output);
    const Request request = read_request(arguments);
    Settings said = request.said;
    if (!said.method) said.method = Method::upipe;
    if (!said.context) throw Error("no context is given", "--context", "add e.g. --context 1M");
    const Recipe recipe = resolve(request, said);
    const TimeBasis basis = read_time_basis(arguments, request.cluster);
    Simulation simulation;
    pointing_to_origin(request, [&] { simulation = simulate(request.model, request.cluster, recipe, basis); });
    if (!trace.path.empty()) {
        std::ostringstream document;
        write_trace(document, trace_of(simulation, trace.layers));
        write({Format::json, trace.path, {}}, document.str());
    }
    switch (output.format) {
        case Format::text:
            write(output, simulation_text(simulation, output.style));
            break;
        case Format::json:
            write(output, simulation_json(simulation));
            break;
        case Format::csv:
            write(output, simulation_csv(simulation));
            break;
    }
    return ExitCode::ok;
}

}  // namespace headroom
