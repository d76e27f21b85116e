// SPDX-License-Identifier: Apache-2.0
// headroom: picks the sub-command, and turns whatever goes wrong into one or two lines and an exit status.
#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <new>
#include <string>

#include "planner/commands/arguments.hpp"
#include "planner/commands/commands.hpp"
#include "planner/commands/output.hpp"
#include "planner/commands/program_version.hpp"
#include "reports/table.hpp"

namespace headroom {

namespace {

std::string program_help() {
    std::string text =
        "Usage: headroom COMMAND [flags]\n\n"
        "Memory planner and performance simulator for long-context transformer training.\n\nCommands\n";
    for (const Command& command : commands) text += fmt::format("  {:<12} {}\n", command.name, command.summary);
    return text +
           "\nExamples\n  headroom max-context\n  headroom plan --method upipe --context 3M\n"
           "\nheadroom COMMAND --help explains a command; --version names this build.\n";
}

ExitCode run(Words words) {
    if (words.empty()) throw Error("no command is given", "headroom", "headroom --help lists the commands");
    if (words.front() == "help") {
        words.erase(words.begin());
        words.emplace_back("--help");
    }
    const std::string name = words.front();
    if ((name == "--help" || name == "-h") && words.size() > 1 && !words[1].starts_with('-')) {
        std::rotate(words.begin(), words.begin() + 1, words.end());  // as `headroom help plan`
        return run(words);
    }
    if (name == "--help" || name == "-h" || name == "--version") {
        if (words.size() > 1) throw Error("unexpected argument '" + printable(words[1]) + "'", name, "leave it out");
        write({}, name == "--version" ? std::string(program_version()) + "\n" : program_help());
        return ExitCode::ok;
    }
    std::vector<std::string> names{"--help", "--version"};
    for (const Command& command : commands) {
        if (name == command.name) return command.run({words.begin() + 1, words.end()});
        names.emplace_back(command.name);
    }
    const char* kind = name.starts_with('-') ? "unknown flag " : "unknown command ";
    throw Error(kind + printable(name), "headroom", suggestion(name, names, "headroom --help lists the commands"));
}

ExitCode report(const Error& error) {
    const std::string where = error.where().empty() ? "" : " (" + printable(error.where()) + ")";
    fmt::print(stderr, "headroom: error: {}{}\n", printable(error.what()), where);
    if (!error.hint().empty()) fmt::print(stderr, "  try: {}\n", printable(error.hint()));
    return error.exit_code();
}

}  // namespace

}  // namespace headroom

int main(int count, char** values) {
    using namespace headroom;
    std::signal(SIGPIPE, SIG_IGN);  // write() reports a closed pipe instead
    std::signal(SIGINT, [](int) { ::_exit(static_cast<int>(ExitCode::interrupted)); });
    try {
        return static_cast<int>(run({values + (count > 0 ? 1 : 0), values + count}));
    } catch (const Error& error) {
        return static_cast<int>(report(error));
    } catch (const std::bad_alloc&) {
        return static_cast<int>(report(Error("out of memory", "", "", ExitCode::failure)));
    } catch (const std::exception& error) {
        return static_cast<int>(
            report(Error(error.what(), "", "this should not happen: please report it", ExitCode::failure)));
    }
}
