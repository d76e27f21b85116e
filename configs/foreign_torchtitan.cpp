// SPDX-License-Identifier: Apache-2.0
// torchtitan's TOML: keys of upstream until February 2026, and of the Untied-Ulysses fork
// (torchtitan/config_manager.py, torchtitan/models/llama3/model.py).
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <limits>

#include "configs/foreign.hpp"

namespace headroom {
namespace {

int degree(const Value& value) {
    const std::int64_t number = integer(value);
    if (number >= 1 && number <= std::numeric_limits<int>::max()) return static_cast<int>(number);
    throw Error(fmt::format("{} must be 1 or more, not {}", value.key, number), value.where());
}

void refuse_above_one(ForeignFile& file, const char* key, const char* what) {
    const Value* value = file.take(key);
    if (value == nullptr || integer(*value) <= 1) return;
    throw Error(fmt::format("{} is not modelled ({} = {})", what, key, integer(*value)), value->where(),
                "plan the context-parallel part alone, with this at 1");
}

NumberFormat number_format(const Value& value) {
    static constexpr std::array<std::string_view, 3> names{"bfloat16", "float16", "float32"};
    return static_cast<NumberFormat>(choice(value, names));
}

void read_parallelism(ForeignFile& file, Settings& settings, bool fork) {
    refuse_above_one(file, "parallelism.tensor_parallel_degree", "tensor parallelism");
    refuse_above_one(file, "parallelism.pipeline_parallel_degree", "pipeline parallelism");
    const Value* inner = file.take("parallelism.context_parallel_ulysses_degree");
    const Value* outer = file.take("parallelism.context_parallel_degree");
    if (fork) settings.ulysses = inner == nullptr ? 1 : degree(*inner);
    if (outer != nullptr || fork) settings.ring = outer == nullptr ? 1 : degree(*outer);
    if (const Value* rotation = file.take("parallelism.context_parallel_rotate_method")) {
        static constexpr std::array<std::string_view, 2> names{"allgather", "alltoall"};
        settings.rotation = static_cast<Rotation>(choice(*rotation, names));
    }
    settings.sharding_strategy = ShardingStrategy::fsdp;
    file.take("parallelism.data_parallel_replicate_degree");
    const Value* shard = file.take("parallelism.data_parallel_shard_degree");
    if (shard != nullptr && integer(*shard) != -1) {
        // FSDP shards over the data-parallel and the context-parallel ranks together.
        settings.sharding_degree = degree(*shard) * settings.ulysses.value_or(1) * settings.ring.value_or(1);
    }
}

void read_attention(ForeignFile& file, Settings& settings) {
    const Value* value = file.take("model.attn_impl");
    file.take("model.ring_comm_heads");
    const std::string name = value == nullptr ? "torch_ring" : text(*value);
    const auto says = [&](const char* part) { return name.find(part) != std::string::npos; };
    if (says("upipe")) {
        settings.method = Method::upipe;
        settings.heads_per_stage = settings.ulysses;  // the code has no other width
    } else if (says("usp")) {
        const bool ulysses = settings.ulysses > 1;
        const bool ring = settings.ring > 1;
        settings.method = ulysses && ring ? Method::usp : ring ? Method::ring : Method::ulysses;
    } else if (says("torch")) {
        settings.method = Method::native;
    } else {
        throw Error(fmt::format("unknown attn_impl '{}'", name), value->where(),
                    "the code knows upipe_..., usp_... and torch_...");
    }
    if (settings.method != Method::native) settings.rotation.reset();
    settings.attention_kernel = says("fa3") ? AttentionKernel::fa3 : AttentionKernel::fa2;
    settings.tiling_norm = settings.tiling_mlp =
        Tiling{says("tiled_mlp") ? Tiling::Kind::automatic : Tiling::Kind::off, 0};
    settings.tiling_loss = Tiling{Tiling::Kind::automatic, 0};  // always Liger's fused loss
}

void read_checkpointing(ForeignFile& file, Settings& settings) {
    if (const Value* mode = file.take("activation_checkpoint.mode")) {
        static constexpr std::array<std::string_view, 2> names{"none", "full"};
        const std::string& word = text(*mode);
        if (word != "none" && word != "full") {
            throw Error(fmt::format("activation checkpointing '{}' is not modelled", word), mode->where(),
                        "use full or none");
        }
        settings.checkpointing = static_cast<Checkpointing>(choice(*mode, names));
    }
    const Value* offloading = file.take("activation_checkpoint.offloading");
    if (offloading != nullptr && text(*offloading) != "no") {
        throw Error(fmt::format("activation offloading '{}' is not modelled", text(*offloading)), offloading->where(),
                    "use no; full checkpointing offloads block inputs by itself");
    }
}

}  // namespace

bool is_torchtitan(const Value& root) {
    if (!root.is_map()) return false;
    return std::any_of(root.items.begin(), root.items.end(), [](const Value& item) {
        return item.is_map() &&
               (item.name == "training" || item.name == "parallelism" || item.name == "activation_checkpoint");
    });
}

void read_torchtitan(ForeignFile& file, Settings& settings) {
    const bool fork = file.has("model.attn_impl") || file.has("parallelism.context_parallel_ulysses_degree");
    settings.implementation = fork ? Implementation::untied_ulysses : Implementation::torchtitan;
    read_parallelism(file, settings, fork);
    read_checkpointing(file, settings);
    if (const Value* context = file.take("training.seq_len")) settings.context = Tokens{integer(*context)};
    for (const char* key : {"training.batch_size", "training.local_batch_size"}) {
        if (const Value* batch = file.take(key)) settings.batch = degree(*batch);
    }
    if (const Value* offload = file.take("training.enable_cpu_offload")) {
        // FSDP's CPU offload keeps parameters, gradients and optimizer states on the host.
        settings.offload_parameters = settings.offload_optimizer = boolean(*offload);
    }
    if (const Value* format = file.take("training.mixed_precision_param")) {
        settings.precision_compute = number_format(*format);
    }
    if (const Value* format = file.take("training.mixed_precision_reduce")) {
        settings.precision_reduction = number_format(*format);
    }
    if (fork) return read_attention(file, settings);
    settings.method = Method::native;
    settings.ulysses = 1;
    settings.attention_kernel = AttentionKernel::fa2;  // what scaled_dot_product_attention picks
    settings.offload_block_inputs = HostPlace::none;
    settings.tiling_norm = settings.tiling_mlp = settings.tiling_loss = Tiling{};
}

}  // namespace headroom
