// SPDX-License-Identifier: Apache-2.0
// headroom launch: a recipe as the files of the code that runs it.
#include <fmt/core.h>

#include <algorithm>
#include <filesystem>

#include "configs/launch.hpp"
#include "configs/load.hpp"
#include "planner/commands/commands.hpp"
#include "planner/commands/output.hpp"
#include "planner/commands/request.hpp"
#include "reports/table.hpp"

namespace headroom {

namespace {

Synopsis synopsis() {
    FlagGroup result{"Result",
                     {{"target", "NAME",
                       "torchtitan, megatron-deepspeed, deepspeed, alst or untied-ulysses (default: the code of the "
                       "recipe's implementation)"},
                      {"output", "DIR", "write the files there instead of to standard output", 'o'}}};
    return {"headroom launch",
            "--context TOKENS [flags]",
            "Writes the settings of a recipe for the code that runs it: configuration files, flags and environment. "
            "What cannot be said there is named on standard error and in the script.",
            {machine_flags(), recipe_flags(), result},
            {"headroom launch --method upipe --context 3M -o run",
             "headroom launch --method fpdt --context 1M --target deepspeed",
             "headroom launch --method ulysses --implementation alst --context 2M -o run"},
            "The files are recipes again: headroom plan --recipe run/launch.sh plans what they say, for the model and "
            "the machine in their comment (DeepSpeed's JSON alone has none)."};
}

LaunchTarget target_of(const Arguments& arguments, const Recipe& recipe) {
    const auto typed = arguments.get("target");
    if (!typed) return launch_target(recipe.implementation);
    const auto* found = std::find(launch_target_names.begin(), launch_target_names.end(), *typed);
    if (found != launch_target_names.end()) return static_cast<LaunchTarget>(found - launch_target_names.begin());
    throw Error("unknown target '" + printable(*typed) + "'", "--target",
                suggestion(*typed, {launch_target_names.begin(), launch_target_names.end()},
                           "use torchtitan, megatron-deepspeed, deepspeed, alst or untied-ulysses"));
}

void write_directory(const std::string& directory, const Launch& launch) {
    namespace fs = std::filesystem;
    std::error_code error;
    fs::create_directories(directory, error);
    if (!fs::is_directory(directory)) {
        throw Error("cannot create the directory '" + printable(directory) + "'", "--output",
                    "name a directory that can be written");
    }
    for (const LaunchFile& file : launch.files) {
        Output output;
        output.path = (fs::path(directory) / file.name).string();
        write(output, file.text);
        if (file.text.starts_with("#!")) {
            fs::permissions(output.path, fs::perms::owner_exec | fs::perms::group_exec | fs::perms::others_exec,
                            fs::perm_options::add, error);
        }
    }
}

std::string joined(const Launch& launch) {
    std::string text;
    for (const LaunchFile& file : launch.files) {
        if (launch.files.size() > 1) text += fmt::format("{}==> {} <==\n", text.empty() ? "" : "\n", file.name);
        text += file.text;
    }
    return text;
}

}  // namespace

Synopsis launch_synopsis() { return synopsis(); }

ExitCode launch_command(const Words& words) {
    if (wants_help(words)) {
        write({}, help_text(synopsis()));
        return ExitCode::ok;
    }
    const Arguments arguments(synopsis(), words);
    const Request request = read_request(arguments);
    Settings said = request.said;
    if (!said.method) said.method = Method::upipe;
    if (!said.context) throw Error("no context is given", "--context", "add e.g. --context 1M");
    Launch launch;
    pointing_to_origin(request, [&] {
        const Recipe recipe = resolve(request, said);
        launch = launch_files(target_of(arguments, recipe), recipe, request.model, request.cluster, request.machine);
    });
    const std::string directory = arguments.get("output").value_or("-");
    if (directory == "-") {
        write({}, joined(launch));
    } else {
        write_directory(directory, launch);
    }
    for (const std::string& what : launch.to_fill_in) fmt::print(stderr, "{}", paragraph(what, "to fill in: "));
    for (const std::string& what : launch.not_expressed) fmt::print(stderr, "{}", paragraph(what, "not expressed: "));
    return ExitCode::ok;
}

}  // namespace headroom
