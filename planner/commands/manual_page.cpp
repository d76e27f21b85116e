// SPDX-License-Identifier: Apache-2.0
// The manual page in man(7), one section for all commands.
#include <fmt/format.h>

#include "planner/commands/completion.hpp"

namespace headroom {

namespace {

/// Backslashes, minus signs, and dots or quotes at the start of a line mean something to roff.
std::string roff(const std::string& text) {
    std::string result;
    for (const char c : text) {
        if (c == '\\') {
            result += "\\e";
        } else if (c == '-') {
            result += "\\-";
        } else if ((c == '.' || c == '\'') && (result.empty() || result.back() == '\n')) {
            result += std::string("\\&") + c;
        } else {
            result += c;
        }
    }
    return result;
}

std::string flag_entry(const Flag& flag) {
    std::string names;
    if (flag.letter != 0) names = fmt::format("\\fB\\-{}\\fR, ", flag.letter);
    names += fmt::format("\\fB\\-\\-{}\\fR", roff(flag.name));
    if (flag.value[0] != '\0') names += fmt::format(" \\fI{}\\fR", roff(flag.value));
    return fmt::format(".TP\n{}\n{}\n", names, roff(flag.help));
}

std::string command_section(const Described& command) {
    const Synopsis& synopsis = command.synopsis;
    std::string text = fmt::format(".SS {}\n.B {}\n{}\n.PP\n{}\n", roff(command.name), roff(synopsis.command),
                                   roff(synopsis.usage), roff(synopsis.summary));
    for (const FlagGroup& group : synopsis.groups) {
        text += fmt::format(".PP\n.I {}\n", roff(group.title));
        for (const Flag& flag : group.flags) text += flag_entry(flag);
    }
    if (!synopsis.notes.empty()) text += fmt::format(".PP\n{}\n", roff(synopsis.notes));
    if (!synopsis.examples.empty()) text += ".PP\nExamples:\n.PP\n.nf\n";
    for (const std::string& example : synopsis.examples) text += fmt::format("    {}\n", roff(example));
    if (!synopsis.examples.empty()) text += ".fi\n";
    return text;
}

}  // namespace

std::string manual_page(const std::vector<Described>& described, const std::string& version) {
    std::string text = fmt::format(
        ".TH HEADROOM 1 \"\" \"{}\" \"User Commands\"\n"
        ".SH NAME\nheadroom \\- memory planner and performance simulator for long\\-context transformer training\n"
        ".SH SYNOPSIS\n.B headroom\n.I COMMAND\n[flags]\n.br\n.B headroom\n\\-\\-help | \\-\\-version\n"
        ".SH COMMANDS\n",
        roff(version));
    for (const Described& command : described) text += command_section(command);
    return text +
           ".SH EXIT STATUS\n"
           ".TP\n0\ndone\n.TP\n1\nsomething outside failed\n.TP\n2\nusage or bad input\n"
           ".TP\n3\ndoes not fit, with \\fB\\-\\-require\\-fit\\fR\n.TP\n130\ninterrupted\n"
           ".SH ENVIRONMENT\n"
           ".TP\n\\fBNO_COLOR\\fR\nno colour on a terminal\n"
           ".TP\n\\fBSOURCE_DATE_EPOCH\\fR\nthe date on a report, in seconds since 1970\n";
}

}  // namespace headroom
