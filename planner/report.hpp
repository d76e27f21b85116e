// SPDX-License-Identifier: Apache-2.0
// Plans as people and programs read them. Text fits 80 columns; JSON keeps the names of schema version 1; CSV has one
// row per configuration, inputs first.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "planner/cheapest_change.hpp"
#include "planner/max_context.hpp"
#include "planner/plan.hpp"
#include "reports/style.hpp"

namespace headroom {

inline constexpr int schema_version = 1;

/// What would fit where a plan does not.
struct WayOut {
    std::optional<MaxContext> longest;  ///< the longest context of the same recipe
    int nodes = 0;                      ///< the fewest on which the context fits; 0: none was found
    std::optional<CheapestChange> change;
    std::string recommend;  ///< the command that searches all methods
};
std::string plan_text(const Plan& plan, const Style& style, const WayOut& way_out = {});
struct Suspects;
/// `suspects` may be absent: not asked for.
std::string plan_json(const Plan& plan, const Suspects* suspects = nullptr);
std::string plan_csv(const Plan& plan);

/// What all rows of a max-context table share.
struct Bench {
    Transformer model;
    Cluster cluster;
};

std::string max_context_text(const Bench& bench, const std::vector<MaxContext>& rows, const Style& style);
std::string max_context_json(const Bench& bench, const std::vector<MaxContext>& rows);
std::string max_context_csv(const Bench& bench, const std::vector<MaxContext>& rows);

/// Tensors of about this size in the step, the nearest dozen unless all are asked for, and what else comes to it.
std::string suspects_text(const Suspects& suspects, const std::string& size, bool all, const Style& style);

struct Simulation;
std::string simulation_text(const Simulation& simulation, const Style& style);
std::string simulation_json(const Simulation& simulation);
std::string simulation_csv(const Simulation& simulation);  ///< one row per operation

/// Tokens of the sequence that one context-parallel rank holds.
Tokens tokens_per_gpu(const Recipe& recipe);
/// Context-parallel groups, each with sequences of its own.
int data_parallel(const Recipe& recipe, const Cluster& cluster);
/// Of one step: the batch of every context-parallel group.
std::int64_t sequences_at_once(const Recipe& recipe, const Cluster& cluster);
Tokens tokens_per_step(const Recipe& recipe, const Cluster& cluster);
/// "Ulysses 8 x ring 2, 8 heads per stage".
std::string degrees(const Recipe& recipe);
/// "step: 277.3 s (258.1 to 299.6), 472.5 tokens/s/GPU (437.2 to 508), MFU 38.2%", in one or two lines; empty
/// without.
std::string step_headline(const Plan& plan);
/// The parts of the step, exposed against busy, and what they rest on; empty without a step time.
std::string step_section(const Plan& plan, const Style& style);
/// "GEMM" for Part::gemm.
std::string_view spoken(Part part);
/// The configuration as a reader of a plan wants it echoed: method and degrees, tokens, what the code does.
std::string recipe_lines(const Recipe& recipe, const Cluster& cluster);
/// "llama3-8b (8,030,261,248 parameters) on h100-sxm-80gb, 1 node x 8 GPUs", ended.
std::string bench_line(const Transformer& model, const Cluster& cluster);

}  // namespace headroom
