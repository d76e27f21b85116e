// SPDX-License-Identifier: Apache-2.0
// What `headroom calibrate` says before anything runs: help of each action, verdicts and refusals of a dry run.
#include <doctest/doctest.h>

#include "calibrate/calibrate.hpp"
#include "tests/fake_device.hpp"
#include "tests/run_headroom.hpp"

namespace headroom {

namespace {

using Words = std::vector<std::string>;

Outcome dry_run(Words words) {
    words.insert(words.begin(), {"calibrate", "run", "--dry-run"});
    return run_headroom(words);
}

}  // namespace

TEST_CASE("each action has help of its own, with examples and exit statuses, in 80 columns") {
    const std::string overview = run_headroom({"calibrate", "--help"}).out;
    CHECK(contains(overview, "Exit status: "));
    for (const char* action : {"probes", "fit", "compare", "run", "check"}) {
        CAPTURE(action);
        const Outcome help = run_headroom({"calibrate", action, "--help"});
        CHECK(help.status == 0);
        CHECK(help.out.starts_with(std::string("Usage: headroom calibrate ") + action));
        CHECK(contains(help.out, std::string("Examples\n  headroom calibrate ") + action));
        CHECK(contains(help.out, "Exit status: 0 "));
        CHECK(help.out.size() < overview.size() / 2);
        CHECK(run_headroom({"calibrate", "help", action}).out == help.out);
        for (const std::string& text : {help.out, overview}) {
            for (const std::string& line : lines_of(text)) {
                CAPTURE(line);
                CHECK(line.size() <= 80);
            }
        }
    }
    CHECK(!contains(run_headroom({"calibrate", "fit", "--help"}).out, "--resume"));
}

TEST_CASE("a case beyond the GPU is marked, and the status says so") {
    const Outcome outcome = dry_run({"--method", "upipe", "--context", "512K,8M", "--gpus", "2"});
    CHECK(outcome.status == 3);
    const auto lines = lines_of(outcome.out);
    REQUIRE(lines.size() == 4);
    CHECK(!contains(lines[2], "does not fit"));
    CHECK(contains(lines[3], "does not fit"));
    CHECK(lines[2].size() == lines[3].size());
    CHECK(dry_run({"--method", "upipe", "--context", "512K", "--gpus", "2"}).status == 0);
}

TEST_CASE("long names and long steps keep their columns") {
    const Outcome outcome = dry_run({"--method", "fpdt", "--context", "1000000,10000000", "--chunk-tokens", "100000",
                                     "--set", "offload.chunks=true", "--gpus", "8"});
    const auto lines = lines_of(outcome.out);
    REQUIRE(lines.size() == 4);
    CHECK(lines[2].size() == lines[3].size());
}

TEST_CASE("lists that no chosen method uses are refused") {
    const Outcome stages = dry_run({"--method", "ulysses", "--context", "128K", "--heads-per-stage", "8"});
    CHECK(stages.status == 2);
    CHECK(contains(stages.err, "only upipe has stages, and it is not among the methods (--heads-per-stage)"));
    const Outcome chunks = dry_run({"--method", "upipe", "--context", "128K", "--chunk-tokens", "64K"});
    CHECK(chunks.status == 2);
    CHECK(contains(chunks.err, "--chunk-tokens"));
}

TEST_CASE("native is not offered, and refused with a reason") {
    const Outcome native = dry_run({"--method", "native", "--context", "128K", "--gpus", "2"});
    CHECK(native.status == 2);
    CHECK(contains(native.out, "cannot be run: "));
    CHECK(contains(run_headroom({"calibrate", "run", "--help"}).out, "native is not executed"));
}

TEST_CASE("the dry run of probes has straight columns, however long a name") {
    const Outcome outcome = run_headroom({"calibrate", "probes", "--dry-run", "--gpus", "16"});
    CHECK(outcome.status == 0);
    const auto lines = lines_of(outcome.out);
    std::size_t rows = 0;
    for (const std::string& line : lines) {
        if (!line.ends_with(" GiB")) continue;
        ++rows;
        CAPTURE(line);
        CHECK(line.size() == lines.front().size());
    }
    CHECK(rows > 20);
}

TEST_CASE("--resume of probes begins a file that is missing") {
    const TemporaryDirectory directory;
    CalibrateOptions options;
    options.action = CalibrateAction::probes;
    options.selection.only = {"host/gap/launch"};
    options.resume = directory.path("node.jsonl");
    const auto open = [](const GpuChoice&) { return std::make_unique<FakeDevice>(); };
    for (int run = 0; run < 2; ++run) {
        CHECK(run_calibrate(options, {"probes"}, open) == ExitCode::ok);
        CHECK(contains(read_file(options.resume), "host/gap/launch"));
    }
}

}  // namespace headroom
