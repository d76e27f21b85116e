// SPDX-License-Identifier: Apache-2.0
// headroom report: one HTML file that needs nothing else.
#include <ctime>

#include "configs/load.hpp"
#include "planner/commands/command_line.hpp"
#include "planner/commands/commands.hpp"
#include "planner/commands/output.hpp"
#include "planner/commands/program_version.hpp"
#include "planner/commands/published.hpp"
#include "planner/commands/request.hpp"
#include "planner/commands/time_basis.hpp"
#include "planner/report_html.hpp"

namespace headroom {

namespace {

Synopsis synopsis() {
    FlagGroup result{"Result", {{"output", "FILE", "the HTML file; - is standard output", 'o'}}};
    return {"headroom report",
            "-o FILE [flags]",
            "Writes one HTML file that needs nothing else: what fits, how far each method goes, memory and speed over "
            "contexts, chunk sizes, where the time goes, and every input with its source.",
            {machine_flags(), recipe_flags(), time_flags(), result},
            {"headroom report -o report.html", "headroom report --model qwen3-32b --nodes 2 --context 2M -o qwen3.html",
             "headroom report --recipe run.yaml -o run.html"},
            "All methods are compared. --context is where; without it, the longest common length that half of them "
            "reach. --method is the one shown in detail; without it, the fastest that fits. SOURCE_DATE_EPOCH sets "
            "the date on the page."};
}

}  // namespace

Synopsis report_synopsis() { return synopsis(); }

ExitCode report_command(const Words& words) {
    if (wants_help(words)) {
        write({}, help_text(synopsis()));
        return ExitCode::ok;
    }
    const Arguments arguments(synopsis(), words);
    const Output output = read_output(arguments);
    if (!arguments.has("output")) {
        throw Error("no file is named", "headroom report", "add e.g. -o report.html");
    }
    const ReportOrigin origin{command_line("headroom report", words), program_version(),
                              report_date(std::time(nullptr))};
    const Request request = read_request(arguments);
    const TimeBasis basis = read_time_basis(arguments, request.cluster);
    pointing_to_origin(request, [&] {
        const Study study = make_study(request.model, request.cluster, request.said, published_recipe, basis);
        const Validation validation = validate_published();
        write(output, html(report_page(study, origin, &validation)));
    });
    return ExitCode::ok;
}

}  // namespace headroom
