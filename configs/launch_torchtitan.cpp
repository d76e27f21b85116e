// SPDX-License-Identifier: Apache-2.0
// torchtitan and its Untied-Ulysses fork: a TOML file, and a script with the environment and torchrun.
// Sources: torchtitan/exps/*/run_all_*.sh, config_manager.py, patch_torch_files/checkpoint_wrapper.py of the fork.
#include <fmt/format.h>

#include "configs/launch.hpp"

namespace headroom {
namespace {

struct Flavor {
    const char* name;
    std::int64_t layers, hidden, heads, kv_heads, ffn;
};

/// llama3_configs in models/llama3/__init__.py; 32B is the fork's Qwen3-32B.
constexpr Flavor flavors[] = {
    {"8B", 32, 4096, 32, 8, 14336},
    {"32B", 64, 5120, 64, 8, 25600},
    {"70B", 80, 8192, 64, 8, 28672},
    {"405B", 126, 16384, 128, 8, 53248},
};

std::string flavor_of(const Transformer& model, bool fork, std::vector<std::string>& to_fill_in) {
    for (const Flavor& flavor : flavors) {
        const bool same = flavor.layers == model.layers && flavor.hidden == model.hidden &&
                          flavor.heads == model.heads && flavor.kv_heads == model.kv_heads && flavor.ffn == model.ffn;
        if (same && (fork || std::string_view(flavor.name) != "32B")) return flavor.name;
    }
    to_fill_in.push_back(
        fmt::format("model.flavor: llama3_configs has none of this shape; add one with dim={}, n_layers={}, "
                    "n_heads={}, n_kv_heads={} and an MLP of {}",
                    model.hidden, model.layers, model.heads, model.kv_heads, model.ffn));
    return model.name;
}

const char* torch_name(NumberFormat format) {
    static constexpr const char* names[] = {"bfloat16", "float16", "float32"};
    return names[static_cast<std::size_t>(format)];
}

/// FSDP shards over data-parallel and context-parallel ranks together; -1 is all that are left.
int shard_degree(const Recipe& recipe, const Cluster& cluster) {
    const int ranks = recipe.context_parallel();
    if (recipe.sharding.degree == cluster.gpus() || recipe.sharding.degree % ranks != 0) return -1;
    return recipe.sharding.degree / ranks;
}

/// How many copies of the sharded states there are, for the shard degree that is written.
int replicas(int shard, const Recipe& recipe, const Cluster& cluster) {
    return shard == -1 ? 1 : cluster.gpus() / (shard * recipe.context_parallel());
}

std::string toml(const Recipe& recipe, const Cluster& cluster, const std::string& flavor, const std::string& attention,
                 const std::string& degrees, const char* batch_key) {
    const int shard = shard_degree(recipe, cluster);
    const bool on_host = recipe.offload.parameters && recipe.offload.optimizer;
    return fmt::format(
        "[model]\n"
        "name = \"llama3\"\n"
        "flavor = {}\n"
        "{}\n"
        "[training]\n"
        "seq_len = {}\n"
        "{} = {}\n"
        "enable_cpu_offload = {}\n"
        "mixed_precision_param = \"{}\"\n"
        "mixed_precision_reduce = \"{}\"\n"
        "\n"
        "[parallelism]\n"
        "data_parallel_replicate_degree = {}\n"
        "data_parallel_shard_degree = {}\n"
        "tensor_parallel_degree = 1\n"
        "pipeline_parallel_degree = 1\n"
        "{}"
        "\n"
        "[activation_checkpoint]\n"
        "mode = \"{}\"\n",
        in_quotes(flavor), attention, recipe.context.value, batch_key, recipe.batch, on_host,
        torch_name(recipe.precision.compute), torch_name(recipe.precision.reduction), replicas(shard, recipe, cluster),
        shard, degrees, to_string(recipe.checkpointing));
}

std::string script(const Recipe& recipe, const Cluster& cluster, const std::string& environment,
                   const std::string& config) {
    return fmt::format(
        "#!/usr/bin/env bash\n"
        "set -euo pipefail\n"
        "export PYTORCH_CUDA_ALLOC_CONF=expandable_segments:{}\n"
        "{}"
        "torchrun --nnodes {} --nproc_per_node {} --rdzv_backend c10d \\\n"
        "    --rdzv_endpoint \"${{RDZV_ENDPOINT:-localhost:29500}}\" \\\n"
        "    -m torchtitan.train --job.config_file {}\n",
        recipe.expandable_segments ? "True" : "False", environment, cluster.nodes, cluster.gpus_per_node, config);
}

std::string attention_name(const Recipe& recipe) {
    if (recipe.method == Method::native) return "torch_ring_alltoall";  // as published; the rotation decides
    std::string name = recipe.method == Method::upipe ? "upipe" : "usp";
    if (recipe.attention_kernel == AttentionKernel::fa3) name += "_fa3";
    name += "_offload";
    if (recipe.tiling.mlp.kind != Tiling::Kind::off) name += "_tiled_mlp";
    return name;
}

}  // namespace

Launch torchtitan_files(const Recipe& recipe, const Transformer& model, const Cluster& cluster) {
    Launch launch;
    const std::string flavor = flavor_of(model, false, launch.to_fill_in);
    const std::string degrees =
        fmt::format("context_parallel_degree = {}\ncontext_parallel_rotate_method = \"{}\"\n", recipe.ring,
                    recipe.rotation == Rotation::all_gather ? "allgather" : "alltoall");
    const char* config = "torchtitan.toml";
    launch.files = {{"launch.sh", script(recipe, cluster, "", config)},
                    {config, toml(recipe, cluster, flavor, "", degrees, "local_batch_size")}};
    launch.to_fill_in.emplace_back("model.tokenizer_path and training.dataset");
    return launch;
}

Launch untied_ulysses_files(const Recipe& recipe, const Transformer& model, const Cluster& cluster) {
    Launch launch;
    const std::string flavor = flavor_of(model, true, launch.to_fill_in);
    const std::string attention =
        fmt::format("attn_impl = \"{}\"\nring_comm_heads = \"gqa_kv\"\n", attention_name(recipe));
    std::string degrees = fmt::format("context_parallel_ulysses_degree = {}\ncontext_parallel_degree = {}\n",
                                      recipe.ulysses, recipe.ring);
    if (recipe.method == Method::native) {
        degrees += fmt::format("context_parallel_rotate_method = \"{}\"\n",
                               recipe.rotation == Rotation::all_gather ? "allgather" : "alltoall");
    }
    // Blocks whose index is a multiple of the stride keep their input: 1000 spares block 0 alone, 1 spares all.
    const bool stays = recipe.offload.block_inputs == HostPlace::none;
    const std::string environment = fmt::format(
        "export AC_LAYER_STRIDE={}\nexport INP_PIN_MEMORY={}\nexport NCCL_ALGO=RING\nexport CLEAR_CUDA_CACHE=0\n",
        stays ? 1 : 1000, recipe.offload.block_inputs == HostPlace::pageable ? "False" : "True");
    const char* config = "untied-ulysses.toml";
    launch.files = {
        {"launch.sh", script(recipe, cluster, environment, config)},
        {config, toml(recipe, cluster, flavor, attention, degrees, "batch_size") + "offloading = \"no\"\n"}};
    launch.to_fill_in.emplace_back("model.tokenizer_path and training.dataset");
    return launch;
}

}  // namespace headroom
