// SPDX-License-Identifier: Apache-2.0
// Claim: recipes and clusters written by users are read as written, and a resolved recipe prints so that it reads back.
#include <doctest/doctest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "configs/load.hpp"
#include "configs/recipe_text.hpp"
#include "models/error.hpp"

using namespace headroom;

namespace {

struct ScratchFile {
    std::filesystem::path path;
    explicit ScratchFile(const std::string& text)
        : path(std::filesystem::temp_directory_path() /
               ("headroom-recipe-test-" + std::to_string(getpid()) + ".yaml")) {
        std::ofstream(path) << text;
    }
    ~ScratchFile() {
        std::error_code ignored;
        std::filesystem::remove(path, ignored);
    }
};

Settings recipe_of(const std::string& text) { return load_recipe(ScratchFile(text).path.string()); }

/// The recipe that settings make when nothing is left open but what describe() leaves out.
Recipe recipe_from(const Settings& s) {
    Recipe r;
    r.method = s.method.value();
    r.context = s.context.value();
    r.batch = s.batch.value();
    r.ulysses = s.ulysses.value();
    r.ring = s.ring.value();
    r.heads_per_stage = s.heads_per_stage.value_or(0);
    r.chunk_tokens = s.chunk_tokens.value_or(Tokens{0});
    r.implementation = s.implementation.value();
    r.attention_kernel = s.attention_kernel.value();
    r.rotation = s.rotation.value_or(Rotation::all_gather);
    r.checkpointing = s.checkpointing.value();
    r.offload = {s.offload_block_inputs.value(), s.offload_optimizer.value(), s.offload_parameters.value(),
                 s.offload_chunks.value()};
    r.tiling = {s.tiling_norm.value(), s.tiling_mlp.value(), s.tiling_loss.value()};
    r.sharding = {s.sharding_strategy.value(), s.sharding_degree.value()};
    r.precision = {s.precision_compute.value(), s.precision_parameters.value(), s.precision_reduction.value(),
                   s.precision_optimizer.value()};
    r.expandable_segments = s.expandable_segments.value();
    return r;
}

/// One recipe in which every setting differs from its default, and one for each method's own keys.
std::vector<Recipe> unusual_recipes() {
    Recipe native;
    native.method = Method::native;
    native.context = {3 * 1024 * 1024};
    native.batch = 2;
    native.ring = 8;
    native.implementation = Implementation::torchtitan;
    native.attention_kernel = AttentionKernel::cudnn;
    native.rotation = Rotation::all_to_all;
    native.checkpointing = Checkpointing::none;
    native.offload = {HostPlace::pageable, true, true, true};
    native.tiling = {{Tiling::Kind::tokens, 4096}, {Tiling::Kind::automatic, 0}, {Tiling::Kind::tokens, 1}};
    native.sharding = {ShardingStrategy::zero2, 16};
    native.precision = {NumberFormat::fp16, NumberFormat::bf16, NumberFormat::fp16, NumberFormat::bf16};
    native.expandable_segments = false;
    Recipe upipe;
    upipe.method = Method::upipe;
    upipe.context = {1};
    upipe.ulysses = 8;
    upipe.heads_per_stage = 16;
    Recipe fpdt;
    fpdt.method = Method::fpdt;
    fpdt.context = {131072};
    fpdt.chunk_tokens = {65536};
    return {native, upipe, fpdt};
}

}  // namespace

TEST_CASE("a described recipe reads back through --set and through a file") {
    for (const Recipe& recipe : unusual_recipes()) {
        CAPTURE(to_string(recipe.method));
        Settings typed;
        std::string file;
        for (const RecipeLine& line : describe(recipe)) {
            set(typed, line.key + "=" + line.value);
            file += line.key + ": " + line.value + "\n";
        }
        CHECK(recipe_from(typed) == recipe);
        CHECK(recipe_from(recipe_of(file)) == recipe);
    }
}

TEST_CASE("describe leaves out what says nothing for the method, and nothing else") {
    const auto keys_of = [](const Recipe& recipe) {
        std::vector<std::string> keys;
        for (const RecipeLine& line : describe(recipe)) keys.push_back(line.key);
        return keys;
    };
    const auto without = [](std::vector<std::string> left_out) {
        std::vector<std::string> keys = recipe_keys();
        for (const std::string& key : left_out) std::erase(keys, key);
        return keys;
    };
    const std::vector<Recipe> recipes = unusual_recipes();
    CHECK(keys_of(recipes[0]) == without({"heads_per_stage", "chunk_tokens"}));
    CHECK(keys_of(recipes[1]) == without({"chunk_tokens", "rotation"}));
    CHECK(keys_of(recipes[2]) == without({"heads_per_stage", "rotation"}));
    CHECK(recipe_keys().size() == 25);
}

TEST_CASE("nested and dotted keys are the same, and what is absent stays open") {
    const Settings nested =
        recipe_of("context: 3M\noffload: {block_inputs: pinned, chunks: true}\ntiling:\n  mlp: 4K\n");
    const Settings dotted =
        recipe_of("context: 3145728\noffload.block_inputs: pinned\noffload.chunks: true\ntiling.mlp: 4096\n");
    for (const Settings* settings : {&nested, &dotted}) {
        CHECK(settings->context == Tokens{3145728});
        CHECK(settings->offload_block_inputs == HostPlace::pinned);
        CHECK(settings->offload_chunks == true);
        CHECK(settings->tiling_mlp == Tiling{Tiling::Kind::tokens, 4096});
        CHECK_FALSE(settings->tiling_norm);
        CHECK_FALSE(settings->method);
        CHECK_FALSE(settings->offload_optimizer);
    }
}

TEST_CASE("a later --set wins") {
    Settings settings;
    set(settings, "ulysses=4");
    set(settings, "ulysses=8");
    set(settings, "tiling.loss=off");
    CHECK(settings.ulysses == 8);
    CHECK(settings.tiling_loss == Tiling{});
}

TEST_CASE("a cluster file changes a built-in one or stands alone") {
    // The 96 GB H100 of torchtitan's published benchmark: HBM2e at 2.4 TB/s.
    const ScratchFile file(
        "base: h100-sxm-80gb\nname: h100-96gb\nnodes: 4\ndevice_memory: 95GiB\nmemory_bandwidth: 2.4TB/s\n");
    const Cluster cluster = load_cluster(file.path.string());
    CHECK(cluster.name == "h100-96gb");
    CHECK(cluster.nodes == 4);
    CHECK(cluster.gpus() == 32);
    CHECK(cluster.device_memory.value == 95 * gibi);
    CHECK(cluster.memory_bandwidth.value == 2.4e12);
    CHECK(cluster.peak_bf16.value == 989.4e12);
    CHECK(cluster.architecture == "hopper");

    const ScratchFile own(
        "architecture: ampere\ngpus_per_node: 4\ndevice_memory: 48GB\nhost_memory: 512GiB\npeak_bf16: 150e12\n"
        "memory_bandwidth: 768e9\nnvlink_bandwidth: 0\npcie_bandwidth: 32GB/s\nnic_bandwidth: 12.5GB/s\n"
        "cuda_context: 600MiB\nnccl_communicator: 0\nnccl_group: 0\nnccl_peer_buffer: 0\n");
    const Cluster alone = load_cluster(own.path.string());
    CHECK(alone.name == own.path.stem().string());
    CHECK(alone.gpus() == 4);
    CHECK(alone.host_memory.value == 512 * gibi);
    CHECK(alone.host_memory_usable == 0.95);
    CHECK(alone.peak_bf16.value == 150e12);
    CHECK(alone.nvlink_bandwidth.value == 0);
}
