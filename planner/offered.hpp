// SPDX-License-Identifier: Apache-2.0
// What a team can really choose in the code that implements a method, without writing code.
#pragma once

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

/// Whose code a search looks at unless one is named: what was compared with measurements. Left out are `lean`, which
/// nobody ships, and `alst`, whose model lacks the eager fp32 norms of Hugging Face and so reaches too far: `validate`
/// shows by how much.
std::vector<Implementation> searched_implementations(Method method);

}  // namespace headroom
