// SPDX-License-Identifier: Apache-2.0
// Completions and the manual page hold what --help holds, and shells take them.
#include <doctest/doctest.h>

#include <algorithm>

#include "planner/commands/commands.hpp"
#include "tests/run_headroom.hpp"

namespace headroom {

namespace {

/// What bash offers for a line whose last word is being typed.
std::vector<std::string> offered(const std::string& line) {
    const Outcome outcome =
        run_shell("bash -c 'source <(\"$HEADROOM\" completion bash) && COMP_WORDS=(" + line +
                  ") && COMP_CWORD=$((${#COMP_WORDS[@]} - 1)) && _headroom && printf \"%s\\n\" \"${COMPREPLY[@]}\"'");
    CAPTURE(outcome.err);
    REQUIRE(outcome.status == 0);
    return lines_of(outcome.out);
}

bool has(const std::vector<std::string>& words, const std::string& word) {
    return std::find(words.begin(), words.end(), word) != words.end();
}

/// Long flags in the help of a command.
std::vector<std::string> flags_in_help(const std::string& command) {
    std::vector<std::string> flags;
    for (const std::string& line : lines_of(run_headroom({command, "--help"}).out)) {
        const std::size_t at = line.find("--");
        if (!line.starts_with("  ") || at == std::string::npos || at > 6) continue;
        flags.push_back(line.substr(at, line.find_first_of(" ,", at) - at));
    }
    return flags;
}

}  // namespace

TEST_CASE("every command describes itself") {
    for (const Command& command : commands) {
        CAPTURE(command.name);
        const bool described = command.synopsis != nullptr;
        REQUIRE(described);
        CHECK(command.synopsis().command == std::string("headroom ") + command.name);
    }
}

TEST_CASE("every flag of every help stands in all completions and in the manual page") {
    const std::string bash = run_headroom({"completion", "bash"}).out;
    const std::string zsh = run_headroom({"completion", "zsh"}).out;
    const std::string fish = run_headroom({"completion", "fish"}).out;
    const std::string manual = run_headroom({"completion", "man"}).out;
    std::size_t count = 0;
    for (const Command& command : commands) {
        CHECK(contains(manual, "headroom " + std::string(command.name).substr(0, 3)));
        for (const std::string& flag : flags_in_help(command.name)) {
            CAPTURE(command.name);
            CAPTURE(flag);
            ++count;
            std::string escaped;
            for (const char c : flag) escaped += c == '-' ? std::string("\\-") : std::string(1, c);
            CHECK(contains(manual, "\\fB" + escaped + "\\fR"));
            CHECK(contains(bash, flag));
            CHECK(contains(zsh, flag + "["));
            CHECK(contains(
                fish, " '__fish_seen_subcommand_from " + std::string(command.name) + "' -l " + flag.substr(2) + " "));
        }
    }
    CHECK(count > 50);
    CHECK(run_headroom({"completion"}).status == 2);
    CHECK(contains(run_headroom({"completion", "bsh"}).err, "did you mean bash?"));
}

TEST_CASE("bash completes commands, flags and values") {
    if (run_shell("command -v bash").status != 0) {
        MESSAGE("skipped: bash is not installed");
        return;
    }
    CHECK(offered("headroom pl") == std::vector<std::string>{"plan"});
    CHECK(has(offered("headroom \"\""), "max-context"));
    CHECK(offered("headroom plan --heads") == std::vector<std::string>{"--heads-per-stage"});
    CHECK(offered("headroom plan --cluster h100") == std::vector<std::string>{"h100-pcie-80gb", "h100-sxm-80gb"});
    CHECK(has(offered("headroom plan --method \"\""), "upipe"));
    CHECK(offered("headroom launch --target mega") == std::vector<std::string>{"megatron-deepspeed"});
    CHECK(has(offered("headroom show \"\""), "models"));
    CHECK(!has(offered("headroom max-context --\"\""), "--context"));
}

TEST_CASE("zsh, fish and man take what is made for them") {
    if (run_shell("command -v zsh").status == 0) CHECK(run_shell("\"$HEADROOM\" completion zsh | zsh -n").status == 0);
    if (run_shell("command -v fish").status == 0)
        CHECK(run_shell("\"$HEADROOM\" completion fish | fish -n").status == 0);
    const TemporaryDirectory directory;
    const std::string page = directory.write("headroom.1", run_headroom({"completion", "man"}).out);
    CHECK(contains(read_file(page), ".TH HEADROOM 1"));
    if (run_shell("command -v groff").status != 0) return;
    const Outcome outcome = run_shell("groff -man -Tutf8 -ww -z " + page);
    CHECK(outcome.err.empty());
}

TEST_CASE("a name that begins several is answered with all of them") {
    const Outcome outcome = run_headroom({"plan", "--context", "1M", "--cluster", "h100"});
    CHECK(outcome.status == 2);
    CHECK(contains(outcome.err, "did you mean h100-pcie-80gb or h100-sxm-80gb?"));
}

}  // namespace headroom
