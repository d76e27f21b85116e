// SPDX-License-Identifier: Apache-2.0
// What one event of a schedule costs on its stream and on the host, and which constants that rests on.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>
#include <vector>

#include "models/schedule.hpp"
#include "simulator/calibration.hpp"
#include "simulator/topology.hpp"

namespace headroom {

/// Time that rests on one kind of constant: its error is common to all ops of the class.
enum class CostClass : std::uint8_t {
    attention,
    gemm,
    memory_bound,
    loss_gemm,
    loss_memory,
    all_to_all,
    all_to_all_across,
    ring,
    ring_across,
    all_gather,
    all_gather_across,
    reduce_scatter,
    reduce_scatter_across,
    copy_pinned,
    copy_pageable,
    host_gap,   ///< launches, waits, barriers
    host_work,  ///< tokenising, filling, and what else the CPU does while the GPU waits
};
inline constexpr std::size_t cost_class_count = 17;

/// What the user reads.
enum class Part : std::uint8_t {
    attention,
    gemm,
    memory_bound,
    loss,
    all_to_all,
    ring,
    all_gather,
    reduce_scatter,
    copies,
    host,
};
inline constexpr std::size_t part_count = 10;
inline constexpr std::array<std::string_view, part_count> part_names{
    "attention", "gemm",       "memory_bound",   "loss",   "all_to_all",
    "ring",      "all_gather", "reduce_scatter", "copies", "host"};
constexpr std::string_view to_string(Part part) { return part_names[static_cast<std::size_t>(part)]; }
Part part_of(CostClass cost_class);

/// Why a prediction leaves what was measured. Bits.
enum class Domain : std::uint32_t {
    inside = 0,
    attention_length = 1,   ///< longer or shorter than the curve's points
    attention_mask = 2,     ///< the curve of the other mask stands in
    gemm_width = 4,         ///< narrower than the table's narrowest
    group_size = 8,         ///< a collective over another number of ranks than was measured
    across_nodes = 16,      ///< a collective crosses nodes
    every_gpu_copies = 32,  ///< pinned copies by all GPUs of a node at once
    pageable = 64,          ///< pageable copies
};
constexpr std::uint32_t bits(Domain domain) { return static_cast<std::uint32_t>(domain); }
/// One sentence for each bit set.
std::vector<std::string_view> describe_domain(std::uint32_t bits);

struct OpCost {
    double seconds = 0;         ///< on its stream, alone
    double launch = 0;          ///< host time before it can start
    double later_launches = 0;  ///< host time of the further kernels of the same event
    CostClass cost_class = CostClass::host_gap;
    std::uint32_t domain = 0;
};

/// The cost of an event that runs (gemm, attention, memory_bound, collective, copy, host_work).
OpCost cost_of(const Event& event, Phase phase, const Calibration& calibration, const Topology& topology,
               AttentionKernel kernel);

/// Remembers the costs of products, attention and collectives by shape: a step asks for the same few dozen again and
/// again.
class CostMemo {
 public:
    void clear();
    /// The answer stands until the next call.
    const OpCost& lookup(const Event& event, Phase phase, const Calibration& calibration, const Topology& topology,
                         AttentionKernel kernel);

 private:
    struct Key {
        std::array<std::uint64_t, 5> words{};
        bool operator==(const Key& other) const {
            std::uint64_t difference = 0;  // five words are compared faster than memcmp is called
            for (std::size_t i = 0; i < words.size(); ++i) difference |= words[i] ^ other.words[i];
            return difference == 0;
        }
    };
    struct Slot {
        Key key;
        OpCost cost;
        std::uint32_t generation = 0;
    };
    static Key key_of(const Event& event, Phase phase);

    OpCost direct_;
    std::vector<Slot> slots_;
    std::uint32_t generation_ = 0;
};

}  // namespace headroom
