// SPDX-License-Identifier: Apache-2.0
// Where results go: stdout alone holds them, files appear whole, pipes may close, colour needs a terminal.
#include <doctest/doctest.h>

#include "tests/run_headroom.hpp"

namespace headroom {

TEST_CASE("help and version go to stdout and end with status 0") {
    for (const std::vector<std::string>& words : std::vector<std::vector<std::string>>{{"--help"},
                                                                                       {"-h"},
                                                                                       {"help"},
                                                                                       {"--version"},
                                                                                       {"plan", "--help"},
                                                                                       {"help", "plan"},
                                                                                       {"--help", "plan"},
                                                                                       {"max-context", "-h"},
                                                                                       {"show", "--help"},
                                                                                       {"plan", "--bogus", "--help"}}) {
        const Outcome outcome = run_headroom(words);
        CHECK(outcome.status == 0);
        CHECK(outcome.err.empty());
        CHECK(!outcome.out.empty());
        for (const std::string& line : lines_of(outcome.out)) CHECK(line.size() <= 80);
    }
    CHECK(run_headroom({"--version"}).out.starts_with("headroom 0."));
    const std::string help = run_headroom({"plan", "--help"}).out;
    for (const char* part : {"Usage: headroom plan", "Examples", "--model", "--heads-per-stage", "-o, --output",
                             "llama3-8b", "--require-fit"}) {
        CHECK(contains(help, part));
    }
}

TEST_CASE("-o writes the same bytes as stdout, replaces a file, and keeps its mode and its link") {
    const TemporaryDirectory directory;
    const std::string file = directory.write("plan.json", "old");
    CHECK(run_shell("chmod 640 " + file + " && ln -s plan.json " + directory.path("link.json")).status == 0);
    const std::string expected = run_headroom({"show", "methods", "--format", "json"}).out;
    for (const char* name : {"plan.json", "link.json", "new.json"}) {
        const Outcome outcome = run_headroom({"show", "methods", "--format", "json", "-o", directory.path(name)});
        CHECK(outcome.status == 0);
        CHECK(outcome.out.empty());
        CHECK(outcome.err.empty());
        CHECK(read_file(directory.path(name)) == expected);
    }
    CHECK(directory.names() == std::vector<std::string>{"link.json", "new.json", "plan.json"});
    CHECK(std::filesystem::is_symlink(directory.path("link.json")));
    CHECK(run_shell("stat -c %a " + file).out == "640\n");
    CHECK(run_headroom({"show", "methods", "--format", "json", "-o", "-"}).out == expected);
}

TEST_CASE("devices are written to, not replaced") {
    CHECK(run_headroom({"show", "methods", "-o", "/dev/null"}).status == 0);
    CHECK(run_shell("test -c /dev/null").status == 0);
    CHECK(contains(run_shell("\"$HEADROOM\" show methods -o /dev/stdout | cat").out, "upipe"));
}

TEST_CASE("a full disk is a failure, a reader that left is not") {
    const Outcome full = run_shell("\"$HEADROOM\" show methods > /dev/full");
    CHECK(full.status == 1);
    CHECK(contains(full.err, "No space left"));
    const Outcome closed = run_shell("{ sleep 0.2; \"$HEADROOM\" show models; echo $? >&2; } | true");
    CHECK(closed.err == "0\n");
}

TEST_CASE("colour is for terminals, and NO_COLOR is honoured") {
    CHECK(!contains(run_headroom({"max-context", "--method", "ulysses"}, {"TERM=xterm"}).out, "\033"));
    if (run_shell("command -v script").status != 0) return;
    const std::string command = "script -qec '\"$HEADROOM\" max-context --method ulysses' /dev/null";
    CHECK(contains(run_shell("unset NO_COLOR; TERM=xterm " + command).out, "\033[1m"));
    CHECK(!contains(run_shell("NO_COLOR=1 TERM=xterm " + command).out, "\033"));
    CHECK(!contains(run_shell("unset NO_COLOR; TERM=dumb " + command).out, "\033"));
}

}  // namespace headroom
