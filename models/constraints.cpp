// SPDX-License-Identifier: Apache-2.0
#include "models/constraints.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "models/error.hpp"
#include "models/units.hpp"

namespace headroom {
namespace {

bool kv_heads_split(std::int64_t kv_heads, std::int64_t degree) {
    return kv_heads % degree == 0 || degree % kv_heads == 0;
}

bool stage_is_valid(const Transformer& model, std::int64_t ulysses, std::int64_t stage) {
    if (stage < ulysses || stage % ulysses != 0 || model.heads % stage != 0) return false;
    const std::int64_t kv_heads = std::max(model.kv_heads, ulysses);
    return stage <= kv_heads ? kv_heads % stage == 0 : stage % kv_heads == 0;
}

[[noreturn]] void refuse(const std::string& what, const char* key, const std::string& hint) {
    throw Error(what, key, hint);
}

/// "--method usp with ulysses 4 x ring 2": the largest valid degree that divides the one asked for.
std::string with_a_ring(const Transformer& model, int degree) {
    int best = 1;
    for (const int valid : valid_ulysses_degrees(model)) {
        if (degree % valid == 0) best = valid;
    }
    if (best == 1) return fmt::format("--method ring with ring {}", degree);
    return fmt::format("--method usp with ulysses {} x ring {}", best, degree / best);
}

void check_ulysses(const Recipe& recipe, const Transformer& model) {
    const int degree = recipe.ulysses;
    if (degree < 1) refuse(fmt::format("ulysses degree {} is not positive", degree), "ulysses", "use 1 or more");
    if (is_valid_ulysses_degree(model, degree)) return;
    const std::string valid = fmt::format("valid Ulysses degrees for {} ({} query heads, {} KV heads): {}", model.name,
                                          model.heads, model.kv_heads, fmt::join(valid_ulysses_degrees(model), ", "));
    if (degree > model.heads) {
        refuse(fmt::format("ulysses degree {} exceeds {} heads", degree, model.heads), "ulysses",
               fmt::format("{}; or {}", valid, with_a_ring(model, degree)));
    }
    if (model.heads % degree != 0) {
        refuse(fmt::format("{} heads are not divisible by ulysses degree {}", model.heads, degree), "ulysses",
               fmt::format("{}; or {}", valid, with_a_ring(model, degree)));
    }
    if (!kv_heads_split(model.kv_heads, degree)) {
        refuse(fmt::format("{} KV heads and ulysses degree {}: one must divide the other", model.kv_heads, degree),
               "ulysses", fmt::format("{}; or {}", valid, with_a_ring(model, degree)));
    }
}

void check_method(const Recipe& recipe, const Transformer& model) {
    const bool plain_ring = recipe.method == Method::ring || recipe.method == Method::native;
    if (plain_ring && recipe.ulysses != 1) {
        refuse(fmt::format("{} has no Ulysses degree, got {}", to_string(recipe.method), recipe.ulysses), "ulysses",
               "use --method usp for Ulysses inside a ring");
    }
    const bool plain_ulysses = recipe.method == Method::ulysses || recipe.method == Method::fpdt;
    if (plain_ulysses && recipe.ring != 1) {
        refuse(fmt::format("{} has no ring degree, got {}", to_string(recipe.method), recipe.ring), "ring",
               "use --method usp or upipe for a ring around Ulysses");
    }
    if (recipe.method == Method::upipe && !stage_is_valid(model, recipe.ulysses, recipe.heads_per_stage)) {
        refuse(fmt::format("{} heads per stage are not possible with {} query heads, {} KV heads and ulysses degree {}",
                           recipe.heads_per_stage, model.heads, model.kv_heads, recipe.ulysses),
               "heads_per_stage",
               fmt::format("valid heads per stage: {} (a multiple of the degree that divides the heads and keeps whole "
                           "KV chunks)",
                           fmt::join(valid_heads_per_stage(model, recipe.ulysses), ", ")));
    }
    if (recipe.method != Method::upipe && recipe.heads_per_stage != 0) {
        refuse(fmt::format("heads per stage belong to upipe, the method is {}", to_string(recipe.method)),
               "heads_per_stage", "leave it out, or use --method upipe");
    }
    if (recipe.method != Method::fpdt && recipe.chunk_tokens.value != 0) {
        refuse(fmt::format("chunk tokens belong to fpdt, the method is {}", to_string(recipe.method)), "chunk_tokens",
               "leave it out, or use --method fpdt");
    }
    if (recipe.method != Method::fpdt && recipe.offload.chunks) {
        refuse(fmt::format("chunk offload belongs to fpdt, the method is {}", to_string(recipe.method)),
               "offload.chunks", "leave it out, or use --method fpdt");
    }
}

void check_implementation(const Recipe& recipe) {
    static constexpr bool runs[6][5] = {
        // untied  megatron alst   torchtitan lean
        {true, false, false, true, true},   // native
        {true, false, false, false, true},  // ring
        {true, false, true, false, true},   // ulysses
        {true, false, false, false, true},  // usp
        {false, true, false, false, true},  // fpdt
        {true, false, false, false, true},  // upipe
    };
    const auto method = static_cast<std::size_t>(recipe.method);
    if (runs[method][static_cast<std::size_t>(recipe.implementation)]) return;
    std::vector<std::string_view> possible;
    for (std::size_t i = 0; i < implementation_names.size(); ++i) {
        if (runs[method][i]) possible.push_back(implementation_names[i]);
    }
    refuse(fmt::format("{} has no {}", to_string(recipe.implementation), to_string(recipe.method)), "implementation",
           fmt::format("{} is implemented by {}", to_string(recipe.method), fmt::join(possible, ", ")));
}

void check_tokens(const Recipe& recipe) {
    if (recipe.context.value <= 0) {
        refuse(fmt::format("context of {} tokens", recipe.context.value), "context", "use 1 token or more, e.g. 128K");
    }
    if (recipe.context > longest_context) {
        refuse(fmt::format("context of {} tokens is beyond 2^40", recipe.context.value), "context",
               "use at most 1099511627776 tokens");
    }
    if (recipe.batch < 1 || recipe.batch > longest_context.value / recipe.context.value) {
        refuse(
            fmt::format("a batch of {} sequences of {} tokens cannot be planned", recipe.batch, recipe.context.value),
            "batch",
            fmt::format("use 1 to {}: at most 2^40 tokens in all", longest_context.value / recipe.context.value));
    }
    if (recipe.method == Method::fpdt) {
        const std::int64_t chunk = recipe.chunk_tokens.value;
        const std::int64_t ranks = recipe.context_parallel();
        if (chunk < 1 || chunk % (2 * ranks) != 0) {
            refuse(fmt::format("chunk of {} tokens is not a multiple of {} (two halves on each of {} ranks)", chunk,
                               2 * ranks, ranks),
                   "chunk_tokens",
                   fmt::format("use e.g. {}", std::max<std::int64_t>(round_up(chunk, 2 * ranks), 64 * kibi)));
        }
        if (recipe.context.value % chunk != 0) {
            refuse(
                fmt::format("context of {} tokens is not a multiple of the chunk of {}", recipe.context.value, chunk),
                "context", fmt::format("use {}, or another --chunk-tokens", round_up(recipe.context.value, chunk)));
        }
        return;
    }
    const std::int64_t granule = context_granule(recipe).value;
    if (recipe.context.value % granule != 0) {
        refuse(fmt::format("context of {} tokens is not a multiple of {} ({})", recipe.context.value, granule,
                           recipe.ring > 1 ? "two zig-zag chunks on every rank" : "one share for every rank"),
               "context", fmt::format("use {}", round_up(recipe.context.value, granule)));
    }
}

/// Bytes are 64-bit integers; a step that could pass 2^62 of them on a rank is refused rather than counted wrong.
void check_countable(const Recipe& recipe, const Transformer& model) {
    const double rows =
        static_cast<double>(recipe.batch) * static_cast<double>(recipe.context.value) / recipe.context_parallel();
    const double wide = static_cast<double>(model.hidden + model.query_width() + 2 * model.ffn);
    const double saved = recipe.checkpointing == Checkpointing::none ? 20.0 : 1.0;
    const double values =
        wide * (saved * static_cast<double>(model.layers) + 100.0) + 8.0 * static_cast<double>(model.vocabulary);
    if (4.0 * rows * values > 0x1p62) {
        refuse(fmt::format("{} tokens on a rank of {} cannot be counted", rows, model.name), "context",
               "use a shorter context, or more ranks");
    }
}

void check_tiling(const Tiling& tiling, const char* key) {
    if (tiling.kind == Tiling::Kind::tokens && tiling.tokens < 1) {
        refuse(fmt::format("tile of {} tokens", tiling.tokens), key, "use off, auto or a number of tokens");
    }
}

void check_ranks(const Recipe& recipe, const Cluster& cluster) {
    if (recipe.ring > cluster.gpus()) {
        refuse(fmt::format("ring degree {} exceeds {} GPUs", recipe.ring, cluster.gpus()), "ring",
               "lower the degree, or raise --nodes");
    }
    const int ranks = recipe.context_parallel();
    const auto product = [&] {
        return recipe.ulysses > 1 && recipe.ring > 1
                   ? fmt::format("ulysses {} x ring {} = {}", recipe.ulysses, recipe.ring, ranks)
                   : fmt::format("{} {}", recipe.ring > 1 ? "ring" : "ulysses", ranks);
    };
    if (recipe.ring < 1) refuse(fmt::format("ring degree {} is not positive", recipe.ring), "ring", "use 1 or more");
    const char* key = recipe.ring > 1 ? "ring" : "ulysses";
    if (ranks > cluster.gpus()) {
        refuse(fmt::format("{} ranks asked, {} GPUs there ({})", ranks, cluster.gpus(), product()), key,
               "lower the degrees, or raise --nodes");
    }
    if (cluster.gpus() % ranks != 0) {
        refuse(fmt::format("{} GPUs are not a multiple of {} context-parallel ranks ({})", cluster.gpus(), ranks,
                           product()),
               key, "choose degrees whose product divides the GPUs; the rest becomes data parallel");
    }
    const int degree = recipe.sharding.degree;
    if (degree < 1 || cluster.gpus() % degree != 0) {
        refuse(fmt::format("sharding degree {} does not divide {} GPUs", degree, cluster.gpus()), "sharding.degree",
               "use a divisor of the number of GPUs");
    }
}

void check_offload(const Recipe& recipe) {
    if (recipe.offload.block_inputs != HostPlace::none && recipe.checkpointing == Checkpointing::none) {
        refuse("block inputs are offloaded but nothing is checkpointed", "offload.block_inputs",
               "set checkpointing=full, or offload.block_inputs=none");
    }
    if (recipe.offload.optimizer && recipe.sharding.strategy == ShardingStrategy::none) {
        refuse("optimizer offload needs sharded states", "offload.optimizer", "set sharding.strategy to zero1 or more");
    }
    if (recipe.offload.parameters && recipe.sharding.strategy != ShardingStrategy::zero3 &&
        recipe.sharding.strategy != ShardingStrategy::fsdp) {
        refuse("parameter offload needs sharded parameters", "offload.parameters",
               "set sharding.strategy to zero3 or fsdp");
    }
}

}  // namespace

bool is_valid_ulysses_degree(const TransformerShape& model, std::int64_t degree) {
    return degree >= 1 && degree <= model.heads && model.heads % degree == 0 && kv_heads_split(model.kv_heads, degree);
}

std::vector<int> valid_ulysses_degrees(const Transformer& model) {
    std::vector<int> degrees;
    for (std::int64_t degree = 1; degree <= model.heads; ++degree) {
        if (is_valid_ulysses_degree(model, degree)) degrees.push_back(static_cast<int>(degree));
    }
    return degrees;
}

std::vector<int> valid_heads_per_stage(const Transformer& model, int ulysses) {
    std::vector<int> stages;
    for (std::int64_t stage = ulysses; stage <= model.heads; stage += ulysses) {
        if (stage_is_valid(model, ulysses, stage)) stages.push_back(static_cast<int>(stage));
    }
    return stages;
}

Tokens context_granule(const Recipe& recipe) {
    if (recipe.method == Method::fpdt) return recipe.chunk_tokens;
    const std::int64_t zigzag = recipe.ring > 1 ? 2 : 1;
    return {zigzag * recipe.context_parallel()};
}

void check(const Recipe& recipe, const Transformer& model, const Cluster& cluster) {
    check_ulysses(recipe, model);
    check_method(recipe, model);
    check_ranks(recipe, cluster);
    check_implementation(recipe);
    check_tokens(recipe);
    check_countable(recipe, model);
    check_tiling(recipe.tiling.norm, "tiling.norm");
    check_tiling(recipe.tiling.mlp, "tiling.mlp");
    check_tiling(recipe.tiling.loss, "tiling.loss");
    check_offload(recipe);
}

namespace {

/// 1048576 -> "1,048,576".
std::string grouped(std::int64_t number) {
    std::string digits = std::to_string(number);
    for (std::size_t at = digits.size(); at > 3; at -= 3) digits.insert(at - 3, 1, ',');
    return digits;
}

}  // namespace

std::vector<std::string> warnings(const Recipe& recipe, const Transformer& model, const Cluster& cluster) {
    std::vector<std::string> list;
    if (model.max_positions > 0 && recipe.context.value > model.max_positions) {
        list.push_back(fmt::format("{} was trained for {} positions; the context is {}", model.name,
                                   grouped(model.max_positions), grouped(recipe.context.value)));
    }
    if (model.kv_heads < recipe.ulysses) {
        list.push_back(fmt::format("{} KV heads are replicated {} times to reach ulysses degree {}", model.kv_heads,
                                   recipe.ulysses / model.kv_heads, recipe.ulysses));
    }
    if (recipe.ulysses > cluster.gpus_per_node) {
        list.push_back("all-to-all crosses nodes: ulysses degree is larger than a node");
    }
    if (model.head_dim % 8 != 0) {
        list.push_back(
            fmt::format("head_dim {} is not a multiple of 8: fused attention kernels refuse it", model.head_dim));
    }
    if (model.head_dim < 32) {
        list.push_back(
            fmt::format("head_dim {} is unusual: fused attention kernels pad it to 32, at its cost", model.head_dim));
    }
    if (model.head_dim > 256) {
        list.push_back(fmt::format("head_dim {} is beyond the 256 that fused attention kernels take", model.head_dim));
    }
    return list;
}

}  // namespace headroom
