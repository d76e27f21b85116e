// SPDX-License-Identifier: Apache-2.0
// DeepSpeed's JSON, Megatron-DeepSpeed's FPDT flags around it, and ArcticTraining's YAML.
// Sources: examples_deepspeed/sequence_parallel/run_single_8B.sh, projects/sequence-parallelism/run-h100-sp8-*.yml.
#include <fmt/format.h>

#include <algorithm>

#include "configs/launch.hpp"

namespace headroom {
namespace {

int stage_of(ShardingStrategy strategy) { return strategy == ShardingStrategy::fsdp ? 3 : static_cast<int>(strategy); }

const char* device(bool on_host) { return on_host ? "cpu" : "none"; }

/// As DeepSpeed spells it.
const char* communication_type(NumberFormat format) {
    static constexpr const char* names[] = {"bfp16", "fp16", "fp32"};
    return names[static_cast<std::size_t>(format)];
}

std::string expandable(const Recipe& recipe) {
    return fmt::format("export PYTORCH_CUDA_ALLOC_CONF=expandable_segments:{}\n",
                       recipe.expandable_segments ? "True" : "False");
}

std::string json(const Recipe& recipe, const Cluster& cluster, const std::string& more) {
    const auto groups = cluster.gpus() / recipe.context_parallel();
    return fmt::format(
        "{{\n"
        "  \"train_batch_size\": {},\n"
        "  \"train_micro_batch_size_per_gpu\": {},\n"
        "{}"
        "  \"zero_optimization\": {{\n"
        "    \"stage\": {},\n"
        "    \"offload_optimizer\": {{\"device\": \"{}\"}},\n"
        "    \"offload_param\": {{\"device\": \"{}\"}}\n"
        "  }},\n"
        "  \"communication_data_type\": \"{}\",\n"
        "  \"bf16\": {{\"enabled\": {}}},\n"
        "  \"fp16\": {{\"enabled\": {}}},\n"
        "  \"gradient_clipping\": 1.0\n"
        "}}\n",
        recipe.batch * groups, recipe.batch, more, stage_of(recipe.sharding.strategy), device(recipe.offload.optimizer),
        device(recipe.offload.parameters), communication_type(recipe.precision.reduction),
        recipe.precision.compute == NumberFormat::bf16, recipe.precision.compute == NumberFormat::fp16);
}

std::string model_flags(const Transformer& model, const Recipe& recipe) {
    return fmt::format(
        "    --num-layers {} --hidden-size {} --ffn-hidden-size {} --num-attention-heads {} \\\n"
        "    --num-key-value-heads {} --kv-channels {} --swiglu --use-rotary-position-embeddings \\\n"
        "    --rotary-percent 0.25 --rotary-position-embeddings-theta 100000000 \\\n",
        model.layers, model.hidden, model.ffn, model.heads,
        // The code has no replication of its own: the sequence-parallel degree must divide the KV heads.
        std::max<std::int64_t>(model.kv_heads, recipe.ulysses), model.head_dim);
}

}  // namespace

Launch megatron_files(const Recipe& recipe, const Transformer& model, const Cluster& cluster) {
    const auto groups = cluster.gpus() / recipe.context_parallel();
    std::string flags = fmt::format(
        "    --ds-sequence-parallel-fpdt --ds-sequence-parallel-fpdt-chunk-size {} \\\n"
        "    --ds-sequence-parallel-size {} --seq-length {} --max-position-embeddings {} \\\n"
        "    --micro-batch-size {} --global-batch-size {} \\\n",
        recipe.chunk_tokens.value, recipe.ulysses, recipe.context.value, recipe.context.value, recipe.batch,
        recipe.batch * groups);
    if (recipe.offload.chunks) flags += "    --ds-sequence-parallel-fpdt-offloading \\\n";
    if (recipe.attention_kernel == AttentionKernel::fa3) flags += "    --use-flash-attn-v3 \\\n";
    if (recipe.attention_kernel == AttentionKernel::fa2) flags += "    --use-flash-attn-v2 \\\n";
    if (recipe.precision.compute != NumberFormat::fp32) {
        flags += fmt::format("    --{} \\\n", to_string(recipe.precision.compute));
    }
    if (recipe.checkpointing == Checkpointing::full) {
        flags += "    --checkpoint-activations --deepspeed-activation-checkpointing \\\n";
        if (recipe.offload.block_inputs != HostPlace::none) flags += "    --checkpoint-in-cpu \\\n";
    }
    const char* config = "ds_config.json";
    Launch launch;
    launch.files = {
        {"launch.sh",
         fmt::format("#!/usr/bin/env bash\n"
                     "set -euo pipefail\n"
                     "{}"
                     "deepspeed --num_nodes {} --num_gpus {} pretrain_gpt.py \\\n"
                     "    --tensor-model-parallel-size 1 --pipeline-model-parallel-size 1 --no-pipeline-parallel \\\n"
                     "{}{}"
                     "    --attention-dropout 0.0 --hidden-dropout 0.0 \\\n"
                     "    --deepspeed --deepspeed_config {} --zero-stage {}\n",
                     expandable(recipe), cluster.nodes, cluster.gpus_per_node, flags, model_flags(model, recipe),
                     config, stage_of(recipe.sharding.strategy))},
        {config, json(recipe, cluster, "")}};
    launch.to_fill_in.emplace_back("--data-path, --tokenizer-type, --tokenizer-model, learning rate and length");
    if (model.kv_heads < recipe.ulysses) {
        launch.to_fill_in.push_back(
            fmt::format("--num-key-value-heads is {} instead of {}: the sequence-parallel degree must divide it",
                        recipe.ulysses, model.kv_heads));
    }
    return launch;
}

Launch deepspeed_files(const Recipe& recipe, const Transformer& model, const Cluster& cluster) {
    static_cast<void>(model);
    Launch launch;
    launch.files = {
        {"ds_config.json", json(recipe, cluster, fmt::format("  \"sequence_parallel_size\": {},\n", recipe.ulysses))}};
    launch.to_fill_in.emplace_back(
        "everything that the training code decides: context, kernel, checkpointing, tiling, chunks");
    return launch;
}

Launch alst_files(const Recipe& recipe, const Transformer& model, const Cluster& cluster) {
    const bool host = recipe.offload.block_inputs != HostPlace::none;
    const char* config = "alst.yaml";
    const std::string kernel = recipe.attention_kernel == AttentionKernel::fa2   ? "flash_attention_2"
                               : recipe.attention_kernel == AttentionKernel::fa3 ? "flash_attention_3"
                                                                                 : "sdpa";
    const std::string yaml = fmt::format(
        "type: sft\n"
        "micro_batch_size: {}\n"
        "sequence_parallel_size: {}\n"
        "activation_checkpoint_cpu_offload: {}\n"
        "tiled_mlp_compute: {}\n"
        "model:\n"
        "  type: {}\n"
        "  name_or_path: {}\n"
        "  attn_implementation: {}\n"
        "{}"
        "data:\n"
        "  pack_samples: true\n"
        "  max_length: {}\n"
        "optimizer:\n"
        "  type: {}\n"
        "deepspeed:\n"
        "  zero_optimization:\n"
        "    stage: {}\n"
        "    offload_optimizer:\n"
        "      device: {}\n"
        "    offload_param:\n"
        "      device: {}\n"
        "  communication_data_type: {}\n"
        "  seq_parallel_communication_data_type: bf16\n",
        recipe.batch, recipe.ulysses, host, recipe.tiling.mlp.kind != Tiling::Kind::off,
        recipe.tiling.loss.kind != Tiling::Kind::off ? "liger" : "causal", in_quotes(model.name), kernel,
        recipe.checkpointing == Checkpointing::none ? "  disable_activation_checkpoint: true\n" : "",
        recipe.context.value, recipe.offload.optimizer ? "cpu_adam" : "fusedadam", stage_of(recipe.sharding.strategy),
        device(recipe.offload.optimizer), device(recipe.offload.parameters),
        communication_type(recipe.precision.reduction));
    Launch launch;
    launch.files = {{"launch.sh", fmt::format("#!/usr/bin/env bash\n"
                                              "set -euo pipefail\n"
                                              "{}"
                                              "arctic_training {} --num_nodes {} --num_gpus {}\n",
                                              expandable(recipe), config, cluster.nodes, cluster.gpus_per_node)},
                    {config, yaml}};
    launch.to_fill_in.push_back(
        fmt::format("model.name_or_path: the Hugging Face name or directory of {}", model.name));
    launch.to_fill_in.emplace_back("data.sources");
    return launch;
}

}  // namespace headroom
