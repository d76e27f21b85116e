// SPDX-License-Identifier: Apache-2.0
// The longest context a method can train, and what stops it there.
#pragma once

#include <string>
#include <string_view>

#include "models/settings.hpp"
#include "planner/plan.hpp"

namespace headroom {

struct MaxContext {
    Method method{};
    bool valid = false;      ///< false: the method cannot run at all here, `limited_by` says why
    Recipe recipe;           ///< with the longest context
    Tokens context;          ///< 0 when not even the shortest context fits
    std::string limited_by;  ///< "GPU memory: backward of block 1, ...", "host memory: ...", or the rule broken
    Plan plan;               ///< at that context, with its step time; empty when it is 0
};

/// The longest context that the shipped code accepts, whatever the memory; longest_context where nothing stops it.
Tokens implementation_ceiling(const Recipe& recipe);
/// The sentence that says what stops it.
inline constexpr std::string_view implementation_ceiling_reason =
    "shipped code: megatron-deepspeed's FPDT scripts fail beyond 4,194,304 tokens (a flag that arguments.py does "
    "not define); --implementation lean shows what memory allows";

/// Searches the multiples of the method's granule (context_granule times 128 tokens a rank) up to longest_context.
/// `settings` must not hold a context. Settings that resolve by length (host buffers) may change along the way.
MaxContext max_context(const Settings& settings, const Settings& published, const Transformer& model,
                       const Cluster& cluster, const TimeBasis& basis = {});

}  // namespace headroom
