// SPDX-License-Identifier: Apache-2.0
#include "models/shipped.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "models/constraints.hpp"

namespace headroom {
namespace {

constexpr Tiling off{Tiling::Kind::off, 0};
constexpr Tiling automatic{Tiling::Kind::automatic, 0};

/// The shipped FPDT scripts pass a flag beyond 4M tokens that the program does not know, so nothing longer runs as is.
constexpr Tokens fpdt_script_ceiling{4 * mebi};

using Keys = std::vector<std::string>;

void refuse(Keys& keys, bool other, const char* key) {
    if (other) keys.emplace_back(key);
}

/// None of these codes lets its optimizer's formats be chosen.
void optimizer_formats(Keys& keys, const Recipe& recipe) {
    refuse(keys, recipe.precision.parameters != NumberFormat::fp32, "precision.parameters");
    refuse(keys, recipe.precision.optimizer != NumberFormat::fp32, "precision.optimizer");
}

/// DeepSpeed's ZeRO shards over all ranks, and its checkpoints on the host are pageable.
void deepspeed(Keys& keys, const Recipe& recipe, const Cluster& cluster) {
    const bool sharded = recipe.sharding.strategy != ShardingStrategy::none;
    refuse(keys, recipe.offload.block_inputs == HostPlace::pinned, "offload.block_inputs");
    refuse(keys, recipe.tiling.norm != off, "tiling.norm");
    refuse(keys, recipe.sharding.strategy == ShardingStrategy::fsdp, "sharding.strategy");
    refuse(keys, recipe.sharding.degree != (sharded ? cluster.gpus() : 1), "sharding.degree");
    optimizer_formats(keys, recipe);
}

void alst(Keys& keys, const Recipe& recipe, const Cluster& cluster) {
    deepspeed(keys, recipe, cluster);
    refuse(keys, recipe.tiling.mlp.kind == Tiling::Kind::tokens, "tiling.mlp");
    refuse(keys, recipe.tiling.loss.kind == Tiling::Kind::tokens, "tiling.loss");
    refuse(keys, recipe.precision.compute != NumberFormat::bf16, "precision.compute");
}

/// FPDT's FFN and loss follow its attention chunk.
void megatron(Keys& keys, const Recipe& recipe, const Cluster& cluster) {
    deepspeed(keys, recipe, cluster);
    refuse(keys, recipe.tiling.mlp != automatic, "tiling.mlp");
    refuse(keys, recipe.tiling.loss != automatic, "tiling.loss");
}

/// FSDP's shards are of whole context-parallel groups, and its CPU offload moves all states together.
void torchtitan(Keys& keys, const Recipe& recipe, const Cluster& cluster) {
    const int degree = recipe.sharding.degree;
    refuse(keys, recipe.offload.block_inputs != HostPlace::none, "offload.block_inputs");
    refuse(keys, recipe.offload.parameters != recipe.offload.optimizer,
           recipe.offload.parameters ? "offload.parameters" : "offload.optimizer");
    refuse(keys, recipe.tiling.norm != off, "tiling.norm");
    refuse(keys, recipe.tiling.mlp != off, "tiling.mlp");
    refuse(keys, recipe.tiling.loss != off, "tiling.loss");
    refuse(keys, recipe.sharding.strategy != ShardingStrategy::fsdp, "sharding.strategy");
    refuse(keys, degree != cluster.gpus() && degree % recipe.context_parallel() != 0, "sharding.degree");
    optimizer_formats(keys, recipe);
}

void append(std::string& reasons, const std::string& reason) { reasons += (reasons.empty() ? "" : "; ") + reason; }

}  // namespace

Settings shipped_settings(Implementation implementation) {
    Settings settings;
    if (implementation == Implementation::alst) {
        // ArcticTraining, projects/sequence-parallelism/run-h100-sp8-*.yml.
        settings.attention_kernel = AttentionKernel::fa2;
        settings.offload_block_inputs = HostPlace::pageable;
        settings.offload_optimizer = true;
        settings.offload_parameters = false;
        settings.tiling_norm = off;
        settings.tiling_mlp = settings.tiling_loss = automatic;
        settings.sharding_strategy = ShardingStrategy::zero3;
    } else if (implementation == Implementation::torchtitan) {
        settings.attention_kernel = AttentionKernel::fa2;  // what scaled_dot_product_attention picks
        settings.offload_block_inputs = HostPlace::none;
        settings.tiling_norm = settings.tiling_mlp = settings.tiling_loss = off;
    }
    return settings;
}

Tokens implementation_ceiling(const Recipe& recipe) {
    const bool script = recipe.method == Method::fpdt && recipe.implementation == Implementation::megatron_deepspeed;
    return script ? fpdt_script_ceiling : longest_context;
}

std::vector<std::string> unexpressed(const Recipe& recipe, const Cluster& cluster) {
    Keys keys;
    if (recipe.implementation == Implementation::alst) alst(keys, recipe, cluster);
    if (recipe.implementation == Implementation::megatron_deepspeed) megatron(keys, recipe, cluster);
    if (recipe.implementation == Implementation::torchtitan) torchtitan(keys, recipe, cluster);
    return keys;
}

std::string beyond_shipped_code(const Recipe& recipe, const Cluster& cluster) {
    std::string reasons;
    if (recipe.context > implementation_ceiling(recipe)) {
        append(reasons,
               "megatron-deepspeed's FPDT scripts fail beyond 4,194,304 tokens (a flag that arguments.py does not "
               "define)");
    }
    if (recipe.method == Method::upipe && recipe.implementation == Implementation::untied_ulysses &&
        recipe.heads_per_stage != recipe.ulysses) {
        append(reasons, fmt::format("the UPipe code runs {} heads per stage, its Ulysses degree, not {}",
                                    recipe.ulysses, recipe.heads_per_stage));
    }
    if (const Keys keys = unexpressed(recipe, cluster); !keys.empty()) {
        append(reasons, fmt::format("{} has no such {}", to_string(recipe.implementation), fmt::join(keys, ", ")));
    }
    return reasons;
}

}  // namespace headroom
