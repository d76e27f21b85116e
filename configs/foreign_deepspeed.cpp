// SPDX-License-Identifier: Apache-2.0
// DeepSpeed's JSON, ArcticTraining's YAML around it, and the flags of Megatron-DeepSpeed's FPDT.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <limits>

#include "configs/foreign.hpp"

namespace headroom {
namespace {

int positive(const Value& value) {
    const std::int64_t number = integer(value);
    if (number >= 1 && number <= std::numeric_limits<int>::max()) return static_cast<int>(number);
    throw Error(fmt::format("{} must be 1 or more, not {}", value.key, number), value.where());
}

std::optional<bool> on_host(ForeignFile& file, const std::string& group) {
    const Value* device = file.take(group + ".device");
    file.take(group + ".pin_memory");
    if (device == nullptr) return std::nullopt;
    if (text(*device) == "nvme") {
        throw Error("offloading to NVMe is not modelled", device->where(), "use cpu or none");
    }
    static constexpr std::array<std::string_view, 2> names{"none", "cpu"};
    return choice(*device, names) == 1;
}

void read_formats(ForeignFile& file, const std::string& prefix, Settings& settings) {
    const Value* bf16 = file.take(prefix + "bf16.enabled");
    const Value* fp16 = file.take(prefix + "fp16.enabled");
    const bool half = fp16 != nullptr && boolean(*fp16);
    const bool brain = bf16 != nullptr && boolean(*bf16);
    if (half && brain) {
        throw Error("bf16 and fp16 are both enabled", fp16->where(), "keep one of them");
    }
    if (half) settings.precision_compute = NumberFormat::fp16;
    if (brain) settings.precision_compute = NumberFormat::bf16;
    if (!half && !brain && bf16 != nullptr && fp16 != nullptr) settings.precision_compute = NumberFormat::fp32;
    if (const Value* format = file.take(prefix + "communication_data_type")) {
        static constexpr std::array<std::string_view, 4> names{"bfp16", "fp16", "fp32", "bf16"};
        settings.precision_reduction = static_cast<NumberFormat>(choice(*format, names) % 3);
    }
}

/// `prefix` ends with a dot, or is empty.
void read_keys(ForeignFile& file, const std::string& prefix, Settings& settings) {
    if (const Value* stage = file.take(prefix + "zero_optimization.stage")) {
        const std::int64_t number = integer(*stage);
        if (number < 0 || number > 3) {
            throw Error(fmt::format("{} must be 0 to 3, not {}", stage->key, number), stage->where());
        }
        settings.sharding_strategy = static_cast<ShardingStrategy>(number);
    }
    const std::string zero = prefix + "zero_optimization.";
    if (const auto host = on_host(file, zero + "offload_optimizer")) settings.offload_optimizer = *host;
    if (const auto host = on_host(file, zero + "offload_param")) settings.offload_parameters = *host;
    if (const Value* batch = file.take(prefix + "train_micro_batch_size_per_gpu")) settings.batch = positive(*batch);
    if (const Value* degree = file.take(prefix + "sequence_parallel_size")) settings.ulysses = positive(*degree);
    read_formats(file, prefix, settings);
    // DeepSpeed offloads what it is told to and nothing else.
    if (!file.has(zero + "offload_optimizer")) settings.offload_optimizer = false;
    if (!file.has(zero + "offload_param")) settings.offload_parameters = false;
}

std::vector<std::string_view> top_names(const Value& root) {
    std::vector<std::string_view> names;
    for (const Value& item : root.items) names.push_back(item.name);
    return names;
}

bool any_of(const Value& root, std::initializer_list<std::string_view> wanted) {
    if (!root.is_map()) return false;
    const auto names = top_names(root);
    return std::any_of(wanted.begin(), wanted.end(), [&](std::string_view name) {
        return std::find(names.begin(), names.end(), name) != names.end();
    });
}

std::optional<bool> flag(ForeignFile& script, const std::string& name) {
    const Value* value = script.take("flags." + name);
    return value == nullptr ? std::nullopt : std::optional<bool>(true);
}

/// Of Megatron's codes FPDT alone is modelled: what the others say must not become a plan of something else.
void refuse_megatron(const ForeignFile& script) {
    static constexpr std::array<std::pair<const char*, const char*>, 3> methods{
        {{"flags.ds-sequence-parallel-size", "Megatron-DeepSpeed's Ulysses without FPDT"},
         {"flags.context-parallel-size", "Megatron's context parallelism"},
         {"flags.seq-length", "a Megatron script without FPDT"}}};
    for (const auto& [key, what] : methods) {
        const Value* value = script.look(key);
        if (value == nullptr) continue;
        throw Error(fmt::format("{} is not modelled", what), value->where(),
                    "plan the nearest that is by flags: --method ulysses --implementation alst, its --context and "
                    "--ulysses, --set sharding.strategy=zero3");
    }
}

}  // namespace

bool is_deepspeed(const Value& root) {
    return any_of(root, {"zero_optimization", "train_micro_batch_size_per_gpu", "train_batch_size",
                         "gradient_accumulation_steps"});
}

bool is_alst(const Value& root) {
    return !is_deepspeed(root) && any_of(root, {"deepspeed", "sequence_parallel_size", "tiled_mlp_compute",
                                                "activation_checkpoint_cpu_offload", "micro_batch_size"});
}

void read_deepspeed(ForeignFile& file, Settings& settings) {
    read_keys(file, "", settings);
    if (!file.has("zero_optimization.stage")) settings.sharding_strategy = ShardingStrategy::none;
}

void read_alst(ForeignFile& file, Settings& settings, std::vector<std::string>& notes) {
    settings.method = Method::ulysses;
    settings.implementation = Implementation::alst;
    settings.ring = 1;
    settings.checkpointing = Checkpointing::full;
    settings.precision_compute = NumberFormat::bf16;
    read_keys(file, "deepspeed.", settings);
    if (const Value* degree = file.take("sequence_parallel_size")) settings.ulysses = positive(*degree);
    if (const Value* batch = file.take("micro_batch_size")) settings.batch = positive(*batch);
    if (const Value* length = file.take("data.max_length")) settings.context = Tokens{positive(*length)};
    const Value* tiled = file.take("tiled_mlp_compute");
    settings.tiling_norm = Tiling{};
    settings.tiling_mlp = Tiling{tiled != nullptr && boolean(*tiled) ? Tiling::Kind::automatic : Tiling::Kind::off, 0};
    const Value* type = file.take("model.type");
    const bool liger = type != nullptr && text(*type) == "liger";  // its fused loss works in chunks
    settings.tiling_loss = Tiling{liger ? Tiling::Kind::automatic : Tiling::Kind::off, 0};
    if (const Value* disabled = file.take("model.disable_activation_checkpoint"); disabled && boolean(*disabled)) {
        settings.checkpointing = Checkpointing::none;
    }
    const Value* offload = file.take("activation_checkpoint_cpu_offload");
    // arctic_training/monkey_patches.py copies the block input by .to("cpu"): pageable.
    settings.offload_block_inputs = offload != nullptr && boolean(*offload) ? HostPlace::pageable : HostPlace::none;
    if (const Value* kernel = file.take("model.attn_implementation")) {
        const std::string& name = text(*kernel);
        if (name == "flash_attention_2") settings.attention_kernel = AttentionKernel::fa2;
        if (name == "flash_attention_3") settings.attention_kernel = AttentionKernel::fa3;
        if (!settings.attention_kernel) {
            notes.push_back(fmt::format("{}: attn_implementation {} leaves the kernel open", kernel->place, name));
        }
    }
    file.take("type");
}

void read_environment(ForeignFile& file, Settings& settings) {
    if (const Value* options = file.take("env.PYTORCH_CUDA_ALLOC_CONF")) {
        settings.expandable_segments = text(*options).find("expandable_segments:True") != std::string::npos;
    }
    const Value* pinned = file.take("env.INP_PIN_MEMORY");
    const Value* stride = file.take("env.AC_LAYER_STRIDE");
    if (stride != nullptr && positive(*stride) == 1) {
        settings.offload_block_inputs = HostPlace::none;
    } else if (pinned != nullptr) {
        settings.offload_block_inputs = text(*pinned) == "False" ? HostPlace::pageable : HostPlace::pinned;
    }
}

void read_megatron_flags(ForeignFile& file, Settings& settings) {
    const bool fpdt = flag(file, "ds-sequence-parallel-fpdt").has_value();
    if (!fpdt) return refuse_megatron(file);
    for (const char* key : {"flags.tensor-model-parallel-size", "flags.pipeline-model-parallel-size"}) {
        const Value* size = file.take(key);
        if (size == nullptr || positive(*size) == 1) continue;
        throw Error(fmt::format("{} is not modelled with FPDT", size->name), size->where(), "plan with it at 1");
    }
    settings.method = Method::fpdt;
    settings.implementation = Implementation::megatron_deepspeed;
    settings.ring = 1;
    settings.tiling_norm = Tiling{};
    settings.tiling_mlp = settings.tiling_loss = Tiling{Tiling::Kind::automatic, 0};  // FPDT's own chunks
    settings.offload_chunks = flag(file, "ds-sequence-parallel-fpdt-offloading").value_or(false);
    if (const Value* chunk = file.take("flags.ds-sequence-parallel-fpdt-chunk-size")) {
        settings.chunk_tokens = Tokens{positive(*chunk)};
    }
    if (const Value* degree = file.take("flags.ds-sequence-parallel-size")) settings.ulysses = positive(*degree);
    if (const Value* length = file.take("flags.seq-length")) settings.context = Tokens{positive(*length)};
    if (const Value* batch = file.take("flags.micro-batch-size")) settings.batch = positive(*batch);
    if (flag(file, "use-flash-attn-v3")) settings.attention_kernel = AttentionKernel::fa3;
    if (flag(file, "use-flash-attn-v2")) settings.attention_kernel = AttentionKernel::fa2;
    if (flag(file, "fp16")) settings.precision_compute = NumberFormat::fp16;
    if (flag(file, "bf16")) settings.precision_compute = NumberFormat::bf16;
    const bool checkpoints = flag(file, "checkpoint-activations").has_value();
    settings.checkpointing = checkpoints ? Checkpointing::full : Checkpointing::none;
    flag(file, "deepspeed-activation-checkpointing");
    const bool on_cpu = flag(file, "checkpoint-in-cpu").has_value();
    // DeepSpeed copies the checkpoint by .cpu(): pageable.
    settings.offload_block_inputs = checkpoints && on_cpu ? HostPlace::pageable : HostPlace::none;
    if (const Value* stage = file.take("flags.zero-stage")) {
        settings.sharding_strategy = static_cast<ShardingStrategy>(std::clamp<std::int64_t>(integer(*stage), 0, 3));
    }
}

}  // namespace headroom
