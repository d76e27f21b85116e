// SPDX-License-Identifier: Apache-2.0
#include "planner/offered.hpp"

namespace headroom {
namespace {

constexpr Tiling off{Tiling::Kind::off, 0};
constexpr Tiling automatic{Tiling::Kind::automatic, 0};
constexpr Tiling tiles_of(std::int64_t tokens) { return {Tiling::Kind::tokens, tokens}; }

std::vector<Placement> all_placements() {
    return {{Checkpointing::none, HostPlace::none},
            {Checkpointing::full, HostPlace::none},
            {Checkpointing::full, HostPlace::pinned},
            {Checkpointing::full, HostPlace::pageable}};
}

/// DeepSpeed's checkpoints on the host are pageable.
std::vector<Placement> pageable_placements() {
    return {{Checkpointing::none, HostPlace::none},
            {Checkpointing::full, HostPlace::none},
            {Checkpointing::full, HostPlace::pageable}};
}

/// Every strategy with each state that it shards on either side.
std::vector<StateChoice> states_under(const std::vector<ShardingStrategy>& strategies) {
    std::vector<StateChoice> choices;
    for (const ShardingStrategy strategy : strategies) {
        choices.push_back({strategy, false, false});
        if (strategy == ShardingStrategy::none) continue;
        choices.push_back({strategy, true, false});
        if (strategy != ShardingStrategy::zero3 && strategy != ShardingStrategy::fsdp) continue;
        choices.push_back({strategy, false, true});
        choices.push_back({strategy, true, true});
    }
    return choices;
}

// Tiles below about a thousand tokens cost more time than they save memory (SkyRL's chunked loss: four times slower).
std::vector<Tiling> mlp_tilings() { return {off, automatic, tiles_of(2048), tiles_of(8192)}; }
std::vector<Tiling> loss_tilings() { return {off, automatic, tiles_of(1024), tiles_of(4096), tiles_of(16384)}; }

}  // namespace

Offered offered(Method method, Implementation implementation) {
    using enum ShardingStrategy;
    Offered choice;
    choice.placements = all_placements();
    choice.norm = {off, automatic};
    choice.mlp = mlp_tilings();
    choice.loss = loss_tilings();
    choice.chunks_on_host = {false};
    switch (implementation) {
        case Implementation::torchtitan:
            // Upstream neither offloads block inputs nor tiles anything.
            choice.placements = {{Checkpointing::none, HostPlace::none}, {Checkpointing::full, HostPlace::none}};
            choice.states = {{fsdp, false, false}, {fsdp, true, true}};
            choice.norm = choice.mlp = choice.loss = {off};
            break;
        case Implementation::untied_ulysses:
            // FSDP2's CPUOffloadPolicy moves parameters and optimizer together (torchtitan: enable_cpu_offload).
            choice.states = {{fsdp, false, false}, {fsdp, true, true}};
            // The published ring of PyTorch runs without tiled layers: they belong to the other attention modules.
            if (method == Method::native) choice.norm = choice.mlp = {off};
            break;
        case Implementation::megatron_deepspeed:
            // FPDT's FFN and loss follow its attention chunk (transformer.py:170, gpt_model.py:47).
            choice.placements = pageable_placements();
            choice.states = states_under({zero1, zero2, zero3});
            choice.norm = {off};
            choice.mlp = choice.loss = {automatic};
            break;
        case Implementation::alst:
            // Switches without a number: tiled_mlp_compute and Liger's loss.
            choice.placements = pageable_placements();
            choice.states = states_under({zero1, zero2, zero3});
            choice.norm = {off};
            choice.mlp = choice.loss = {off, automatic};
            break;
        case Implementation::lean:
            choice.states = states_under({none, zero1, zero2, zero3, fsdp});
            choice.any_heads_per_stage = true;
            break;
    }
    if (method == Method::fpdt) choice.chunks_on_host = {false, true};
    return choice;
}

std::vector<Implementation> searched_implementations(Method method) {
    using enum Implementation;
    if (method == Method::native) return {untied_ulysses, torchtitan};
    if (method == Method::fpdt) return {megatron_deepspeed};
    return {untied_ulysses};
}

}  // namespace headroom
