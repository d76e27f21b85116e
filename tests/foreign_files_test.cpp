// SPDX-License-Identifier: Apache-2.0
// Files of other codes say for which model and machine they are, imply a method, or are not read at all: none of them
// becomes a plan of something else without a word.
#include <doctest/doctest.h>

#include "configs/foreign.hpp"
#include "tests/run_headroom.hpp"

namespace headroom {

namespace {

Outcome launched(const TemporaryDirectory& directory, std::vector<std::string> words) {
    words.insert(words.begin(), "launch");
    words.insert(words.end(), {"-o", directory.path("run")});
    return run_headroom(words);
}

std::string plan_of(std::vector<std::string> words) {
    words.insert(words.begin(), "plan");
    words.insert(words.end(), {"--format", "csv"});
    const Outcome outcome = run_headroom(words);
    CAPTURE(outcome.err);
    REQUIRE(outcome.status == 0);
    return outcome.out;
}

}  // namespace

TEST_CASE("launch files are planned for the model and the machine they were written for") {
    const TemporaryDirectory directory;
    const std::vector<std::vector<std::string>> machines{
        {"--model", "qwen3-32b"},
        {"--model", "qwen3-32b", "--nodes", "2"},
        {"--cluster", "h200", "--gpus", "4"},
        {"--model", "qwen3-8b", "--method", "fpdt", "--nodes", "2"},
        {"--model", "qwen3-8b", "--method", "ulysses", "--implementation", "alst", "--cluster", "h200"}};
    for (std::vector<std::string> words : machines) {
        words.insert(words.end(), {"--context", "1M"});
        CAPTURE(words);
        REQUIRE(launched(directory, words).status == 0);
        CHECK(plan_of({"--recipe", directory.path("run/launch.sh")}) == plan_of(words));
    }
}

TEST_CASE("what a launch file was written for is said, and flags win over it") {
    const TemporaryDirectory directory;
    REQUIRE(launched(directory, {"--model", "qwen3-32b", "--context", "1M", "--nodes", "2"}).status == 0);
    const std::string script = directory.path("run/launch.sh");
    CHECK(contains(run_headroom({"plan", "--recipe", script}).err,
                   script + ": written for --model qwen3-32b --cluster h100-sxm-80gb --nodes 2\n"));
    CHECK(plan_of({"--recipe", script, "--model", "qwen3-8b", "--set", "ring=1", "--gpus", "8"}) ==
          plan_of({"--model", "qwen3-8b", "--context", "1M"}));
    const std::string rows = run_headroom({"sweep", "--recipe", script, "--context", "1M"}).out;
    CHECK(contains(rows, "\nqwen3-32b,h100-sxm-80gb,2,16,upipe,"));
    const Outcome changed = run_headroom({"what-if", "--recipe", script, "--change", "batch=1"});
    CHECK(contains(changed.out, "on h100-sxm-80gb, 2 nodes x 8 GPUs"));
    CHECK(contains(changed.out, "fits, as before; the step's peak +0.00 GiB"));
}

TEST_CASE("the comment survives names that a shell would split") {
    const MachineNames odd{"/a b/it's $here", "my cluster.yaml", "2", std::nullopt};
    CHECK(read_machine_comment("#!/bin/sh\n" + machine_comment(odd) + "run\n", "x") == odd);
    CHECK(read_machine_comment("echo '# headroom: --model a'\n", "x") == MachineNames{});
    CHECK(machine_comment({}).empty());
    const TemporaryDirectory directory;
    directory.write("my model.json", read_file(std::string(HEADROOM_TEST_DATA) + "/hf-configs/Llama-3.1-8B.json"));
    REQUIRE(launched(directory, {"--model", directory.path("my model.json"), "--context", "1M"}).status == 0);
    CHECK(contains(plan_of({"--recipe", directory.path("run/launch.sh")}), "my model"));
}

TEST_CASE("a file for a model of another code's is refused until it is named") {
    const TemporaryDirectory directory;
    const std::string toml = directory.write(
        "run.toml", "[model]\nname = \"llama3\"\nflavor = \"70B\"\n[parallelism]\ncontext_parallel_degree = 8\n");
    const Outcome refused = run_headroom({"plan", "--recipe", toml, "--context", "128K"});
    CHECK(refused.status == 2);
    CHECK(contains(refused.err, "the file is for the model llama3 70B"));
    CHECK(contains(refused.err, "run.toml:3:10"));
    CHECK(contains(refused.err, "--model"));
    CHECK(run_headroom({"plan", "--recipe", toml, "--context", "128K", "--model", "llama3-70b"}).status == 0);
    const std::string small = directory.write(
        "small.yml", "sequence_parallel_size: 8\nmodel:\n  name_or_path: meta-llama/Llama-3.1-8B-Instruct\n");
    CHECK(run_headroom({"plan", "--recipe", small, "--context", "128K"}).status == 0);
}

TEST_CASE("a DeepSpeed file means ZeRO with Ulysses, and the guess is said") {
    const TemporaryDirectory directory;
    const std::string json = directory.write("ds.json",
                                             "{\"train_micro_batch_size_per_gpu\": 1, \"sequence_parallel_size\": 16,"
                                             " \"zero_optimization\": {\"stage\": 3}}");
    const Outcome guessed = run_headroom({"plan", "--recipe", json, "--context", "1M", "--nodes", "2"});
    REQUIRE(guessed.status == 0);
    CHECK(contains(guessed.out, "ulysses: Ulysses 16 x ring 1"));
    CHECK(contains(guessed.out, "alst code"));
    CHECK(contains(guessed.out, "sharded by zero3 over 16"));
    CHECK_FALSE(contains(guessed.out, "optimizer on the host"));
    CHECK(contains(guessed.err, "ds.json names no method and no code: planned as ulysses in the alst code"));
    const Outcome said = run_headroom({"plan", "--recipe", json, "--context", "1M", "--nodes", "2", "--method", "usp"});
    CHECK(contains(said.out, "usp: Ulysses 16 x ring 1"));
    CHECK_FALSE(contains(said.err, "names no method"));
    const Outcome rows = run_headroom({"sweep", "--recipe", json, "--context", "1M", "--nodes", "2"});
    CHECK(contains(rows.out, ",ulysses,1048576,1,16,1,,,alst,"));
    const std::string none = directory.write("none.json", "{\"train_batch_size\": 8}");
    CHECK(contains(run_headroom({"plan", "--recipe", none, "--context", "64K"}).out, "states not sharded"));
    const std::string trainer = directory.write("hf.sh", "#!/bin/sh\ndeepspeed train.py --deepspeed=ds.json\n");
    CHECK(load_recipe_file(trainer).settings.ulysses == 16);
    CHECK(load_recipe_file(trainer).guess.method == Method::ulysses);
}

TEST_CASE("a script of which nothing is known is an error, and so is a Megatron code that is not modelled") {
    const TemporaryDirectory directory;
    const std::string ulysses = directory.write(
        "u.sh",
        "#!/bin/bash\ndeepspeed pretrain_gpt.py --seq-length 524288 --ds-sequence-parallel-size 8 --zero-stage 3\n");
    const Outcome megatron = run_headroom({"plan", "--recipe", ulysses});
    CHECK(megatron.status == 2);
    CHECK(contains(megatron.err, "Megatron-DeepSpeed's Ulysses without FPDT is not modelled"));
    CHECK(contains(megatron.err, "u.sh:2:"));
    const std::string own = directory.write("t.sh", "#!/bin/bash\ntorchrun train.py --foo 3\n");
    const Outcome unread = run_headroom({"plan", "--recipe", own, "--context", "1M"});
    CHECK(unread.status == 2);
    CHECK(unread.out.empty());
    CHECK(contains(unread.err, "nothing in this script is a setting that is known here"));
    CHECK(contains(unread.err, "name the TOML, JSON or YAML file"));
}

}  // namespace headroom
