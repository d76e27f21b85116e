// SPDX-License-Identifier: Apache-2.0
// What a team can really choose in the code that implements a method, without writing code.
#pragma once

#include <string_view>
#include <vector>

#include "models/recipe.hpp"

namespace headroom {

/// Where block inputs wait for backward. Without checkpointing there are none.
struct Placement {
    Checkpointing checkpointing = Checkpointing::full;
    HostPlace block_inputs = HostPlace::none;
    bool operator==(const Placement&) const = default;
};

/// How states are shared between ranks, and which of them wait on the host.
struct StateChoice {
    ShardingStrategy strategy = ShardingStrategy::fsdp;
    bool optimizer_on_host = false;
    bool parameters_on_host = false;
    bool operator==(const StateChoice&) const = default;
};

struct Offered {
    std::vector<Placement> placements;
    std::vector<StateChoice> states;
    std::vector<Tiling> norm, mlp, loss;
    std::vector<bool> chunks_on_host;  ///< of FPDT
    bool any_heads_per_stage = false;  ///< of UPipe; else only the Ulysses degree
};

Offered offered(Method method, Implementation implementation);

/// Whose code a search looks at unless one is named. Left out are `lean`, which nobody ships, and `alst`: its memory in
/// use is within 8 % of what its authors noted for eight runs, but the longest contexts they give for an 8B model on
/// H100 are passed by a fifth to a third, and nothing we read in its code explains it.
std::vector<Implementation> searched_implementations(Method method);
/// That, as a sentence for who did not name an implementation.
inline constexpr std::string_view not_searched =
    "Not searched: DeepSpeed ALST, whose longest contexts for 8B on H100 are predicted a fifth to a third beyond those "
    "that its authors give; --implementation alst searches it.";

}  // namespace headroom
