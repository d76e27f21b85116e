// SPDX-License-Identifier: Apache-2.0
// How the model is trained: the method, its degrees and chunks, and everything around it that moves memory or time.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

#include "models/units.hpp"

namespace headroom {

enum class Method {
    native,   ///< PyTorch context parallel: a ring over K/V repeated to all heads
    ring,     ///< zig-zag ring attention that passes K/V
    ulysses,  ///< DeepSpeed-Ulysses: all-to-all from sequence shards to head shards
    usp,      ///< Ulysses inside, ring outside
    fpdt,     ///< Ulysses in sequence chunks, chunks offloaded to the host
    upipe,    ///< Ulysses in stages of a few heads (Untied Ulysses)
};

/// Whose code runs. Decides the copies, casts and blocking calls beside the algorithm.
enum class Implementation {
    untied_ulysses,      ///< togethercomputer/Untied-Ulysses (torchtitan fork): upipe, usp, ulysses, ring, native
    megatron_deepspeed,  ///< Megatron-DeepSpeed's FPDT
    alst,                ///< DeepSpeed ALST with Hugging Face modelling code: ulysses
    torchtitan,          ///< upstream torchtitan context parallel: native
    lean,                ///< the algorithm with the buffers it needs and no others
};

enum class AttentionKernel { fa2, fa3, cudnn };
enum class Checkpointing { none, full };
enum class HostPlace { none, pinned, pageable };
enum class Rotation { all_gather, all_to_all };  ///< how native context parallel moves K/V
enum class ShardingStrategy { none, zero1, zero2, zero3, fsdp };
enum class NumberFormat { bf16, fp16, fp32 };

constexpr std::int64_t bytes_per_element(NumberFormat format) { return format == NumberFormat::fp32 ? 4 : 2; }

/// Tokens per tile of a tiled layer.
struct Tiling {
    enum class Kind { off, automatic, tokens } kind = Kind::off;
    std::int64_t tokens = 0;  ///< only with Kind::tokens
    bool operator==(const Tiling&) const = default;
};

/// Every setting, resolved: no value here means "default".
struct Recipe {
    Method method = Method::ulysses;
    Tokens context;           ///< tokens of one sequence, over all ranks
    std::int64_t batch = 1;   ///< sequences per context-parallel group and step
    int ulysses = 1;          ///< C_u
    int ring = 1;             ///< C_r
    int heads_per_stage = 0;  ///< U, upipe only
    Tokens chunk_tokens;      ///< global tokens per FPDT chunk, fpdt only

    Implementation implementation = Implementation::untied_ulysses;
    AttentionKernel attention_kernel = AttentionKernel::fa3;
    Rotation rotation = Rotation::all_gather;  ///< native only
    Checkpointing checkpointing = Checkpointing::full;

    struct Offload {
        HostPlace block_inputs = HostPlace::none;
        bool optimizer = false;
        bool parameters = false;
        bool chunks = false;  ///< fpdt: chunks of q, k, v and their gradients on the host
        bool operator==(const Offload&) const = default;
    } offload;

    struct Tilings {
        Tiling norm, mlp, loss;
        bool operator==(const Tilings&) const = default;
    } tiling;

    struct Sharding {
        ShardingStrategy strategy = ShardingStrategy::fsdp;
        int degree = 1;  ///< N, ranks that share one copy of the states
        bool operator==(const Sharding&) const = default;
    } sharding;

    struct Precision {
        NumberFormat compute = NumberFormat::bf16;     ///< activations and the weights of a running block
        NumberFormat parameters = NumberFormat::fp32;  ///< the master copy the optimizer updates
        NumberFormat reduction = NumberFormat::fp32;   ///< gradients while they are reduced, and the shard kept
        NumberFormat optimizer = NumberFormat::fp32;   ///< each of Adam's two moments
        bool operator==(const Precision&) const = default;
    } precision;

    bool expandable_segments = true;

    int context_parallel() const { return ulysses * ring; }  ///< C
    bool operator==(const Recipe&) const = default;
};

// Names as users type and read them; the order is that of the enumerators.
inline constexpr std::array<std::string_view, 6> method_names{"native", "ring", "ulysses", "usp", "fpdt", "upipe"};
inline constexpr std::array<std::string_view, 5> implementation_names{"untied-ulysses", "megatron-deepspeed", "alst",
                                                                      "torchtitan", "lean"};
inline constexpr std::array<std::string_view, 3> attention_kernel_names{"fa2", "fa3", "cudnn"};
inline constexpr std::array<std::string_view, 2> checkpointing_names{"none", "full"};
inline constexpr std::array<std::string_view, 3> host_place_names{"none", "pinned", "pageable"};
inline constexpr std::array<std::string_view, 2> rotation_names{"all-gather", "all-to-all"};
inline constexpr std::array<std::string_view, 5> sharding_names{"none", "zero1", "zero2", "zero3", "fsdp"};
inline constexpr std::array<std::string_view, 3> number_format_names{"bf16", "fp16", "fp32"};

constexpr std::string_view to_string(Method v) { return method_names[static_cast<std::size_t>(v)]; }
constexpr std::string_view to_string(Implementation v) { return implementation_names[static_cast<std::size_t>(v)]; }
constexpr std::string_view to_string(AttentionKernel v) { return attention_kernel_names[static_cast<std::size_t>(v)]; }
constexpr std::string_view to_string(Checkpointing v) { return checkpointing_names[static_cast<std::size_t>(v)]; }
constexpr std::string_view to_string(HostPlace v) { return host_place_names[static_cast<std::size_t>(v)]; }
constexpr std::string_view to_string(Rotation v) { return rotation_names[static_cast<std::size_t>(v)]; }
constexpr std::string_view to_string(ShardingStrategy v) { return sharding_names[static_cast<std::size_t>(v)]; }
constexpr std::string_view to_string(NumberFormat v) { return number_format_names[static_cast<std::size_t>(v)]; }

}  // namespace headroom
