// SPDX-License-Identifier: Apache-2.0
// Bad input: one or two lines on stderr that say what, where and what to do; status 2; nothing on stdout.
#include <doctest/doctest.h>

#include "tests/run_headroom.hpp"

namespace headroom {

namespace {

using Words = std::vector<std::string>;

void check_refused(const Outcome& outcome, const Words& parts) {
    CAPTURE(outcome.err);
    CHECK(outcome.status == 2);
    CHECK(outcome.out.empty());
    const auto lines = lines_of(outcome.err);
    REQUIRE(!lines.empty());
    CHECK(lines.size() <= 2);
    CHECK(lines[0].starts_with("headroom: error: "));
    if (lines.size() == 2) CHECK(lines[1].starts_with("  try: "));
    for (const std::string& part : parts) {
        CAPTURE(part);
        CHECK(contains(outcome.err, part));
    }
}

void check_refused(const Words& arguments, const Words& parts) {
    std::string line;
    for (const std::string& word : arguments) line += word + " ";
    CAPTURE(line);
    check_refused(run_headroom(arguments), parts);
}

}  // namespace

TEST_CASE("heads that the Ulysses degree does not divide") {
    check_refused({"plan", "--context", "1M", "--ulysses", "3", "--gpus", "3"},
                  {"32 heads", "3", "--ulysses", "1, 2, 4"});
    check_refused({"plan", "--context", "1M", "--set", "ulysses=5"}, {"--set ulysses=5"});
    check_refused({"max-context", "--ulysses", "5"}, {"32 heads", "--ulysses"});
}

TEST_CASE("heads per stage that are no multiple of the degree, or do not divide the heads") {
    check_refused({"plan", "--context", "1M", "--method", "upipe", "--heads-per-stage", "12"},
                  {"12 heads per stage", "--heads-per-stage", "8, 16, 32"});
    check_refused({"plan", "--context", "1M", "--method", "upipe", "--ulysses", "8", "--heads-per-stage", "24"},
                  {"24", "--heads-per-stage"});
    check_refused({"plan", "--context", "1M", "--method", "usp", "--heads-per-stage", "8"},
                  {"upipe", "--heads-per-stage"});
}

TEST_CASE("chunks that do not split evenly") {
    check_refused({"plan", "--context", "1M", "--method", "fpdt", "--chunk-tokens", "65537"},
                  {"65537", "--chunk-tokens"});
    check_refused({"plan", "--context", "100K", "--method", "fpdt"}, {"102400", "--context"});
    check_refused({"plan", "--context", "1M", "--method", "fpdt", "--chunk-tokens", "0"}, {"--chunk-tokens"});
}

TEST_CASE("contexts out of range or not a number") {
    for (const char* context : {"0", "-1", "-128K", "1099511627777", "2T", "1.5", "128Q", "12K8", "", "K", "nan",
                                "1e400", "99999999999999999999", "0x10", "1M "}) {
        check_refused({"plan", "--context", context}, {"--context"});
    }
    check_refused({"plan", "--context", "1000001"}, {"1000001", "multiple", "--context"});
    check_refused({"plan"}, {"--context"});
    check_refused({"max-context", "--context", "1M"}, {"--context", "headroom plan"});
    check_refused({"max-context", "--set", "context=1M"}, {"--set context=1M"});
}

TEST_CASE("more ranks than GPUs, and GPUs that are not whole nodes") {
    check_refused({"plan", "--context", "1M", "--method", "usp", "--ulysses", "8", "--ring", "4"},
                  {"32 ranks", "8 GPUs"});
    check_refused({"plan", "--context", "1M", "--gpus", "12"}, {"12 GPUs", "--gpus", "multiple of 8"});
    check_refused({"plan", "--context", "1M", "--nodes", "2", "--gpus", "17"}, {"--gpus"});
    for (const char* count : {"0", "-8", "eight", "8.0", "1e9", "99999999999", ""}) {
        check_refused({"plan", "--context", "1M", "--gpus", count}, {"--gpus"});
        check_refused({"plan", "--context", "1M", "--nodes", count}, {"--nodes"});
    }
}

TEST_CASE("misspelt names get a suggestion") {
    check_refused({"plna", "--context", "1M"}, {"plna", "did you mean plan?"});
    check_refused({"plan", "--contxt", "1M"}, {"--contxt", "did you mean --context?"});
    check_refused({"plan", "--ulyses=8"}, {"--ulyses ", "did you mean --ulysses?"});
    check_refused({"plan", "--context", "1M", "--model", "lama3-8b"},
                  {"lama3-8b", "--model", "did you mean llama3-8b"});
    check_refused({"plan", "--context", "1M", "--cluster", "h100-sxm-80"}, {"--cluster", "did you mean h100-sxm-80gb"});
    check_refused({"plan", "--context", "1M", "--method", "upip"}, {"upip", "--method", "did you mean upipe"});
    check_refused({"max-context", "--method", "upipe,upsi"}, {"upsi", "--method"});
    check_refused({"plan", "--context", "1M", "--set", "ulyses=8"}, {"did you mean ulysses"});
    check_refused({"show", "modles"}, {"modles", "did you mean models?"});
    check_refused({"--versoin"}, {"did you mean --version?"});
}

TEST_CASE("flags are neither guessed, repeated nor left without a value") {
    check_refused({"plan", "--cont", "1M"}, {"unknown flag --cont"});
    check_refused({"plan", "--context", "1M", "--context", "2M"}, {"--context is given more than once"});
    check_refused({"plan", "--context"}, {"--context needs a value"});
    check_refused({"plan", "--context="}, {"--context needs a value"});
    check_refused({"plan", "--context", "--model"}, {"--context"});
    check_refused({"plan", "--context", "1M", "--require-fit=yes"}, {"--require-fit takes no value"});
    check_refused({"plan", "1M"}, {"unexpected argument '1M'"});
    check_refused({"plan", "context", "1M"}, {"did you mean --context?"});
    check_refused({"plan", "--context", "1M", "--", "x"}, {"unexpected argument 'x'"});
    check_refused(Words{}, {"no command", "headroom --help"});
    check_refused({"--version", "x"}, {"unexpected argument 'x'"});
}

TEST_CASE("one setting said twice with different values") {
    check_refused({"plan", "--context", "1M", "--ulysses", "8", "--set", "ulysses=4"},
                  {"--ulysses", "--set ulysses=4"});
    check_refused({"plan", "--context", "1M", "--set", "ring=2", "--set", "ring=4"}, {"ring", "--set ring=2"});
    check_refused({"max-context", "--method", "usp", "--set", "method=ring"}, {"--method"});
    check_refused({"max-context", "--method", "usp,usp"}, {"usp", "twice"});
    check_refused({"plan", "--context", "1M", "--set", "ring"}, {"ring", "key=value"});
}

TEST_CASE("settings that contradict each other name where they were said") {
    check_refused({"plan", "--context", "1M", "--method", "ring", "--ulysses", "2"}, {"--ulysses"});
    check_refused({"plan", "--context", "1M", "--set", "checkpointing=none", "--set", "offload.block_inputs=pinned"},
                  {"--set offload.block_inputs=pinned"});
    check_refused({"plan", "--context", "1M", "--method", "upipe", "--implementation", "megatron-deepspeed"},
                  {"--implementation"});
}

TEST_CASE("files that cannot be used") {
    const TemporaryDirectory directory;
    const std::string truncated = directory.write("config.json", "{\"hidden_size\": 4096, \"num_hid");
    const std::string missing = directory.path("nowhere.json");
    const std::string empty = directory.path("empty");
    CHECK(run_shell("mkdir " + empty).status == 0);
    check_refused({"plan", "--context", "1M", "--model", truncated}, {truncated + ":1:"});
    check_refused({"plan", "--context", "1M", "--model", missing}, {missing, "--model"});
    check_refused({"plan", "--context", "1M", "--model", empty}, {empty, "config.json"});
    check_refused({"plan", "--context", "1M", "--recipe", directory.path("none.yaml")}, {"none.yaml", "--recipe"});
    check_refused({"plan", "--context", "1M", "--recipe", empty}, {empty});
    check_refused({"plan", "--context", "1M", "--cluster", directory.path("none.yaml")}, {"none.yaml", "--cluster"});
    const std::string unknown = directory.write("unknown.yaml", "method: upipe\nulyses: 8\n");
    check_refused({"plan", "--context", "1M", "--recipe", unknown}, {unknown + ":2:", "did you mean ulysses"});
    const std::string impossible = directory.write("impossible.yaml", "method: usp\nulysses: 3\n");
    check_refused({"plan", "--context", "1M", "--recipe", impossible}, {impossible, "ulysses"});
}

TEST_CASE("outputs that cannot be written are refused before anything else, and nothing is left behind") {
    const TemporaryDirectory directory;
    check_refused({"plan", "--context", "1M", "-o", directory.path("no/plan.json")},
                  {directory.path("no"), "--output"});
    check_refused({"plan", "--context", "1M", "-o", directory.path()}, {"directory", "--output"});
    check_refused({"plan", "--context", "1M", "-o", ""}, {"output"});
    check_refused({"plan", "--context", "1M", "--format", "jsn"}, {"jsn", "--format", "did you mean json?"});
    check_refused({"plan", "--context", "0", "-o", directory.path("plan.json")}, {"--context"});
    CHECK(directory.names().empty());
}

TEST_CASE("show says what it can show") {
    check_refused({"show"}, {"models"});
    check_refused({"show", "model"}, {"which model?", "headroom show models"});
    check_refused({"show", "model", "lama3-8b"}, {"lama3-8b", "did you mean llama3-8b"});
    check_refused({"show", "recipe", "upip"}, {"upip", "did you mean upipe"});
    check_refused({"show", "models", "llama3-8b"}, {"takes no name"});
    check_refused({"show", "model", "llama3-8b", "h200"}, {"unexpected argument 'h200'"});
}

TEST_CASE("what was typed cannot send escape sequences to the terminal") {
    const Outcome outcome = run_headroom({"plan", "--context", "1M", "--model", "\033[31mred\nline"});
    check_refused(outcome, {"red"});
    CHECK(!contains(outcome.err, "\033"));
}

TEST_CASE("what is wrong with a change stands at the change") {
    check_refused({"what-if", "--context", "1M", "--change", "foo=1"},
                  {"unknown recipe key 'foo'", "(--change foo=1)"});
    check_refused({"what-if", "--context", "1M", "--set", "foo=1"}, {"unknown recipe key 'foo'", "(--set foo=1)"});
}

TEST_CASE("files that are too large, and calibrations without a key") {
    const TemporaryDirectory scratch;
    const std::string large = scratch.write("large.json", std::string(17 << 20, ' '));
    check_refused({"plan", "--context", "1M", "--model", large}, {"too large to be a config", "16 MiB"});
    const std::string empty = scratch.write("k.yaml", "description: x\n");
    check_refused({"plan", "--context", "1M", "--calibration", empty}, {"missing schema in the file"});
}

TEST_CASE("help of a command, whichever way round; help of nothing") {
    CHECK(run_headroom({"--help", "plan"}).out == run_headroom({"plan", "--help"}).out);
    check_refused({"--help", "plam"}, {"unknown command plam", "plan"});
    check_refused({"--help", "--help"}, {"unexpected argument"});
}

TEST_CASE("a recipe from standard input, and from a plan's JSON") {
    const Outcome piped =
        run_shell("printf 'method: ulysses\ncontext: 1M\n' | \"$HEADROOM\" plan --recipe - --format csv");
    CHECK(piped.status == 0);
    CHECK(contains(piped.out, "ulysses"));
    check_refused(run_shell("\"$HEADROOM\" plan --recipe - --context 1M < /dev/null"), {"standard input"});
    const TemporaryDirectory scratch;
    const Words words{"plan", "--method", "ulysses", "--context", "1M", "--batch", "2", "--format", "json"};
    const std::string json = run_headroom(words).out;
    const std::string file = scratch.write("plan.json", json);
    CHECK(run_headroom({"plan", "--recipe", file, "--format", "json"}).out == json);
}

}  // namespace headroom
