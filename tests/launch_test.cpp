// SPDX-License-Identifier: Apache-2.0
// Launch files: a recipe written for a code and read back is the same recipe, but for what the target cannot express,
// and that is named. Files as their authors ship them are read for what they say.
#include "configs/launch.hpp"

#include <doctest/doctest.h>

#include <map>
#include <random>
#include <set>

#include "configs/foreign.hpp"
#include "configs/load.hpp"
#include "configs/recipe_text.hpp"
#include "tests/run_headroom.hpp"

namespace headroom {

namespace {

Recipe recipe_of(const Settings& said, const Transformer& model, const Cluster& cluster) {
    return resolve(said, published_recipe(said.method.value()), model, cluster);
}

/// Writes the files to a disk and reads the first one back, as --recipe does.
Recipe round_trip(const Launch& launch, const Transformer& model, const Cluster& cluster) {
    const TemporaryDirectory directory;
    for (const LaunchFile& file : launch.files) directory.write(file.name, file.text);
    const RecipeFile read = load_recipe_file(directory.path(launch.files.front().name));
    return recipe_of(read.settings, model, cluster);
}

/// Keys whose values differ.
std::set<std::string> differing(const Recipe& a, const Recipe& b) {
    std::map<std::string, std::string> values;
    for (const RecipeLine& line : describe(a)) values[line.key] = line.value;
    std::set<std::string> keys;
    for (const RecipeLine& line : describe(b)) {
        const auto found = values.find(line.key);
        if (found == values.end() || found->second != line.value) keys.insert(line.key);
        if (found != values.end()) values.erase(found);
    }
    for (const auto& [key, value] : values) keys.insert(key);
    return keys;
}

std::set<std::string> named(const Launch& launch) {
    std::set<std::string> keys;
    for (const std::string& what : launch.not_expressed) keys.insert(what.substr(0, what.find('=')));
    return keys;
}

/// What each target has no word for at all, worked out by hand from the codes' own options.
const std::map<LaunchTarget, std::set<std::string>> inexpressible{
    // The method only where usp has no ring; offload and tilings only in combinations the code does not have.
    {LaunchTarget::untied_ulysses,
     {"method", "heads_per_stage", "attention_kernel", "offload.optimizer", "offload.parameters", "tiling.norm",
      "tiling.mlp", "tiling.loss", "sharding.strategy", "sharding.degree", "precision.parameters",
      "precision.optimizer"}},
    {LaunchTarget::torchtitan,
     {"attention_kernel", "offload.block_inputs", "offload.optimizer", "offload.parameters", "tiling.norm",
      "tiling.mlp", "tiling.loss", "sharding.strategy", "sharding.degree", "precision.parameters",
      "precision.optimizer"}},
    {LaunchTarget::megatron_deepspeed,
     {"attention_kernel", "offload.block_inputs", "tiling.norm", "tiling.mlp", "tiling.loss", "sharding.strategy",
      "sharding.degree", "precision.parameters", "precision.optimizer"}},
    {LaunchTarget::alst,
     {"attention_kernel", "offload.block_inputs", "tiling.norm", "tiling.mlp", "tiling.loss", "sharding.strategy",
      "sharding.degree", "precision.compute", "precision.parameters", "precision.optimizer"}},
};

template <class T>
T any(std::mt19937& random, std::initializer_list<T> values) {
    return values.begin()[std::uniform_int_distribution<std::size_t>(0, values.size() - 1)(random)];
}

Tiling any_tiling(std::mt19937& random) {
    return any(random, {Tiling{}, Tiling{Tiling::Kind::automatic, 0}, Tiling{Tiling::Kind::automatic, 0},
                        Tiling{Tiling::Kind::tokens, 2048}});
}

/// A recipe somebody might try; not all are valid.
Settings any_settings(std::mt19937& random) {
    Settings said;
    const auto [method, implementation] = any(
        random,
        {std::pair{Method::native, Implementation::untied_ulysses},
         std::pair{Method::native, Implementation::torchtitan}, std::pair{Method::ring, Implementation::untied_ulysses},
         std::pair{Method::ulysses, Implementation::untied_ulysses}, std::pair{Method::ulysses, Implementation::alst},
         std::pair{Method::usp, Implementation::untied_ulysses},
         std::pair{Method::fpdt, Implementation::megatron_deepspeed},
         std::pair{Method::upipe, Implementation::untied_ulysses}});
    said.method = method;
    said.implementation = implementation;
    said.context = Tokens{any(random, {128, 256, 1024, 4096}) * kibi};
    said.batch = any<std::int64_t>(random, {1, 1, 2});
    if (any(random, {0, 1}) == 1) said.ulysses = any(random, {1, 2, 4, 8});
    if (any(random, {0, 1}) == 1) said.ring = any(random, {1, 2, 4});
    if (method == Method::fpdt) said.chunk_tokens = Tokens{any(random, {32, 64, 128}) * kibi};
    if (method == Method::fpdt) said.offload_chunks = any(random, {true, false});
    if (method == Method::native) said.rotation = any(random, {Rotation::all_gather, Rotation::all_to_all});
    said.attention_kernel = any(random, {AttentionKernel::fa2, AttentionKernel::fa3, AttentionKernel::cudnn});
    said.checkpointing = any(random, {Checkpointing::full, Checkpointing::full, Checkpointing::none});
    if (said.checkpointing == Checkpointing::full) {
        said.offload_block_inputs = any(random, {HostPlace::none, HostPlace::pinned, HostPlace::pageable});
    }
    said.offload_optimizer = any(random, {true, false});
    said.offload_parameters = any(random, {true, false});
    said.tiling_norm = any_tiling(random);
    said.tiling_mlp = any_tiling(random);
    said.tiling_loss = any_tiling(random);
    said.sharding_strategy = any(random, {ShardingStrategy::fsdp, ShardingStrategy::zero1, ShardingStrategy::zero2,
                                          ShardingStrategy::zero3, ShardingStrategy::none});
    if (any(random, {0, 1}) == 1) said.sharding_degree = any(random, {4, 8, 16});
    said.precision_compute = any(random, {NumberFormat::bf16, NumberFormat::fp16});
    said.precision_reduction = any(random, {NumberFormat::bf16, NumberFormat::fp16, NumberFormat::fp32});
    said.precision_optimizer = any(random, {NumberFormat::bf16, NumberFormat::fp32});
    said.expandable_segments = any(random, {true, false});
    return said;
}

Settings read(const std::string& name, const std::string& text, std::vector<std::string>* notes = nullptr) {
    const TemporaryDirectory directory;
    const RecipeFile file = load_recipe_file(directory.write(name, text));
    if (notes != nullptr) *notes = file.notes;
    return file.settings;
}

std::string complaint(const std::string& name, const std::string& text) {
    try {
        read(name, text);
    } catch (const Error& error) {
        return std::string(error.what()) + " | " + error.where().substr(error.where().find(name)) + " | " +
               error.hint();
    }
    return "nothing";
}

}  // namespace

TEST_CASE("every published recipe survives its launch files unchanged") {
    const Transformer model = load_model("llama3-8b");
    Cluster cluster = load_cluster("h100-sxm-80gb");
    cluster.nodes = 2;  // so that usp has a ring
    for (std::size_t i = 0; i < method_names.size(); ++i) {
        for (const std::int64_t context : {256 * kibi, 4 * mebi, 6 * mebi}) {
            Settings said;
            said.method = static_cast<Method>(i);
            said.context = Tokens{context};
            const Recipe recipe = recipe_of(said, model, cluster);
            CAPTURE(method_names[i]);
            CAPTURE(context);
            const Launch launch = launch_files(launch_target(recipe.implementation), recipe, model, cluster);
            CHECK(launch.not_expressed == std::vector<std::string>{});
            CHECK(differing(recipe, round_trip(launch, model, cluster)) == std::set<std::string>{});
        }
    }
}

TEST_CASE("random recipes survive but for what is named, and only what has no word is named") {
    const Transformer model = load_model("llama3-8b");
    Cluster cluster = load_cluster("h100-sxm-80gb");
    std::mt19937 random(20260);
    std::map<LaunchTarget, int> written;
    for (int i = 0; i < 3000; ++i) {
        cluster.nodes = any(random, {1, 2});
        const Settings said = any_settings(random);
        Recipe recipe;
        try {
            recipe = recipe_of(said, model, cluster);
        } catch (const Error&) {
            continue;
        }
        const LaunchTarget target = launch_target(recipe.implementation);
        const Launch launch = launch_files(target, recipe, model, cluster);
        const std::set<std::string> names = named(launch);
        CAPTURE(launch.files.front().text);
        // A few of many on a disk: launch_files itself has read the texts.
        if (written[target]++ < 25) CHECK(differing(recipe, round_trip(launch, model, cluster)) == names);
        for (const std::string& key : names) {
            CAPTURE(key);
            CHECK(inexpressible.at(target).contains(key));
        }
    }
    for (const auto& [target, keys] : inexpressible) {
        CAPTURE(to_string(target));
        CHECK(written[target] > 60);
    }
}

TEST_CASE("DeepSpeed's JSON alone keeps what it knows") {
    const Transformer model = load_model("qwen3-8b");
    const Cluster cluster = load_cluster("h100-sxm-80gb");
    Settings said;
    said.method = Method::fpdt;
    said.context = Tokens{mebi};
    said.batch = 2;
    said.sharding_strategy = ShardingStrategy::zero2;
    said.offload_optimizer = true;
    said.precision_compute = NumberFormat::bf16;
    said.precision_reduction = NumberFormat::fp32;
    const Recipe recipe = recipe_of(said, model, cluster);
    const Launch launch = launch_files(LaunchTarget::deepspeed, recipe, model, cluster);
    CHECK(launch.not_expressed.empty());
    const Settings back = read("ds_config.json", launch.files.front().text);
    CHECK(back.batch == 2);
    CHECK(back.ulysses == 8);
    CHECK(back.sharding_strategy == ShardingStrategy::zero2);
    CHECK(back.offload_optimizer == true);
    CHECK(back.offload_parameters == false);
    CHECK(back.precision_compute == NumberFormat::bf16);
    CHECK(back.precision_reduction == NumberFormat::fp32);
    CHECK(!back.context);
    CHECK_THROWS_AS(launch_files(LaunchTarget::alst, recipe, model, cluster), Error);
}

TEST_CASE("UPipe's launch files say what the authors' scripts say") {
    const TemporaryDirectory directory;
    const Outcome outcome =
        run_headroom({"launch", "--method", "upipe", "--context", "5M", "-o", directory.path("run")});
    CAPTURE(outcome.err);
    REQUIRE(outcome.status == 0);
    const std::string toml = read_file(directory.path("run/untied-ulysses.toml"));
    for (const char* line : {"attn_impl = \"upipe_fa3_offload_tiled_mlp\"", "ring_comm_heads = \"gqa_kv\"",
                             "seq_len = 5242880", "context_parallel_ulysses_degree = 8", "context_parallel_degree = 1",
                             "mode = \"full\"", "offloading = \"no\"", "flavor = \"8B\"", "batch_size = 1"}) {
        CHECK(contains(toml, line));
    }
    const std::string script = read_file(directory.path("run/launch.sh"));
    for (const char* line : {"PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True", "INP_PIN_MEMORY=False",
                             "AC_LAYER_STRIDE=1000", "NCCL_ALGO=RING", "--job.config_file untied-ulysses.toml"}) {
        CHECK(contains(script, line));
    }
    CHECK(run_shell("bash -n " + directory.path("run/launch.sh")).status == 0);
    CHECK(run_headroom({"plan", "--recipe", directory.path("run/launch.sh"), "--format", "csv"}).out ==
          run_headroom({"plan", "--method", "upipe", "--context", "5M", "--format", "csv"}).out);
    CHECK(run_headroom({"launch", "--context", "1M", "--target", "alts"}).status == 2);
    CHECK(contains(run_headroom({"launch", "--context", "1M", "--target", "alts"}).err, "did you mean alst?"));
    CHECK(run_headroom({"launch", "--context", "1M", "--implementation", "lean"}).status == 2);
    const Outcome pinned = run_headroom({"launch", "--context", "1M", "--set", "tiling.loss=2048"});
    CHECK(pinned.status == 0);
    CHECK(contains(pinned.err, "not expressed: tiling.loss=2048: the code does auto"));
}

TEST_CASE("torchtitan TOML as people have it") {
    std::vector<std::string> notes;
    const Settings upstream = read("run.toml",
                                   "# a comment\n[job]\ndump_folder = \"./out\"\n[training]\nlocal_batch_size = 2\n"
                                   "seq_len = 131_072\n[parallelism]\ncontext_parallel_degree = 8\n"
                                   "context_parallel_rotate_method = \"alltoall\"\n"
                                   "[activation_checkpoint]\nmode = \"full\"\n",
                                   &notes);
    CHECK(upstream.method == Method::native);
    CHECK(upstream.implementation == Implementation::torchtitan);
    CHECK(upstream.context == Tokens{131072});
    CHECK(upstream.batch == 2);
    CHECK(upstream.ring == 8);
    CHECK(upstream.rotation == Rotation::all_to_all);
    REQUIRE(notes.size() == 1);
    CHECK(contains(notes[0], "not part of a recipe: job"));

    const Settings fork = read("fork.toml",
                               "[model]\nattn_impl = \"usp_fa3_offload_tiled_mlp\"\n[parallelism]\n"
                               "context_parallel_ulysses_degree = 8\ncontext_parallel_degree = 2\n"
                               "data_parallel_shard_degree = 2\n[training]\nseq_len = 65536\n");
    CHECK(fork.method == Method::usp);
    CHECK(fork.implementation == Implementation::untied_ulysses);
    CHECK(fork.ulysses == 8);
    CHECK(fork.ring == 2);
    CHECK(fork.sharding_degree == 32);
    CHECK(fork.attention_kernel == AttentionKernel::fa3);
    CHECK(fork.tiling_mlp == Tiling{Tiling::Kind::automatic, 0});
    CHECK(!fork.offload_block_inputs);

    CHECK(contains(complaint("t.toml", "[training]\nseq_len = \"1M\"\n"), "| t.toml:2:11: training.seq_len |"));
    CHECK(contains(complaint("t.toml", "[training\n"), "t.toml:1:"));
    CHECK(contains(complaint("t.toml", "[parallelism]\ntensor_parallel_degree = 2\n"), "tensor parallelism is not"));
    CHECK(contains(complaint("t.toml", "[activation_checkpoint]\nmode = \"selective\"\n"), "'selective' is not"));
    CHECK(contains(complaint("t.toml", "[model]\nattn_impl = \"magic\"\n[training]\nseq_len = 1\n"), "'magic'"));
    CHECK(contains(complaint("t.toml", "[tool.black]\nline-length = 100\n"), "none of torchtitan's sections"));
}

TEST_CASE("DeepSpeed JSON and ArcticTraining YAML as people have them") {
    std::vector<std::string> notes;
    const Settings json = read("ds.json",
                               "{\"train_micro_batch_size_per_gpu\": \"auto\", \"bf16\": {\"enabled\": \"auto\"},\n"
                               " \"zero_optimization\": {\"stage\": 3, \"offload_optimizer\": {\"device\": \"cpu\","
                               " \"pin_memory\": true}, \"overlap_comm\": true}, \"gradient_clipping\": \"auto\"}",
                               &notes);
    CHECK(!json.batch);
    CHECK(!json.precision_compute);
    CHECK(json.sharding_strategy == ShardingStrategy::zero3);
    CHECK(json.offload_optimizer == true);
    CHECK(json.offload_parameters == false);  // what DeepSpeed is not told to offload stays
    REQUIRE(notes.size() == 1);
    CHECK(contains(notes[0], "zero_optimization.overlap_comm"));
    CHECK(!contains(notes[0], "pin_memory"));
    CHECK(
        contains(complaint("d.json", "{\"zero_optimization\": {\"stage\": 4}}"), "must be 0 to 3, not 4 | d.json:1:"));
    CHECK(contains(complaint("d.json", "{\"zero_optimization\": {\"stage\": 3.5}}"), "zero_optimization.stage"));
    CHECK(
        contains(complaint("d.json", "{\"zero_optimization\": {\"offload_param\": {\"device\": \"nvme\"}}}"), "NVMe"));

    const Settings yaml = read("run.yml",
                               "type: sft\nmicro_batch_size: 1\nactivation_checkpoint_cpu_offload: true\n"
                               "tiled_mlp_compute: true\nsequence_parallel_size: 8\ndeepspeed:\n  zero_optimization:\n"
                               "    stage: 3\n    offload_optimizer:\n      device: cpu\nmodel:\n  type: \"liger\"\n"
                               "  attn_implementation: flash_attention_2\ndata:\n  max_length: 3800000\n");
    CHECK(yaml.method == Method::ulysses);
    CHECK(yaml.implementation == Implementation::alst);
    CHECK(yaml.ulysses == 8);
    CHECK(yaml.context == Tokens{3'800'000});
    CHECK(yaml.offload_optimizer == true);
    CHECK(yaml.offload_block_inputs == HostPlace::pageable);
    CHECK(yaml.tiling_mlp == Tiling{Tiling::Kind::automatic, 0});
    CHECK(yaml.tiling_norm == Tiling{});
    CHECK(yaml.attention_kernel == AttentionKernel::fa2);
}

TEST_CASE("launch scripts: quotes, continued lines, variables, and files they name") {
    const TemporaryDirectory directory;
    directory.write("ds.json", "{\"zero_optimization\": {\"stage\": 3}}");
    const std::string script = directory.write(
        "run.sh",
        "#!/bin/bash\n# --fp16 in a comment\nexport PYTORCH_CUDA_ALLOC_CONF=\"expandable_segments:True\"\n"
        "deepspeed pretrain_gpt.py --ds-sequence-parallel-fpdt \\\n"
        "    --ds-sequence-parallel-fpdt-chunk-size 32768 --ds-sequence-parallel-fpdt-offloading \\\n"
        "    --ds-sequence-parallel-size ${sp_size} --seq-length 1048576 --bf16 --deepspeed_config 'ds.json'\n");
    const Settings said = load_recipe_file(script).settings;
    CHECK(said.method == Method::fpdt);
    CHECK(said.chunk_tokens == Tokens{32768});
    CHECK(said.offload_chunks == true);
    CHECK(!said.ulysses);
    CHECK(said.context == Tokens{1048576});
    CHECK(said.precision_compute == NumberFormat::bf16);
    CHECK(said.checkpointing == Checkpointing::none);
    CHECK(said.sharding_strategy == ShardingStrategy::zero3);
    CHECK(said.expandable_segments == true);
    const std::string loop = directory.write("loop.sh", "#!/bin/sh\nrun --job.config_file loop.sh\n");
    CHECK_THROWS_AS(load_recipe_file(loop), Error);
}

}  // namespace headroom
