// SPDX-License-Identifier: Apache-2.0
// What one GPU sends and copies for one block of a step.
#pragma once

#include <array>
#include <string>
#include <vector>

#include "models/schedule.hpp"
#include "simulator/topology.hpp"

namespace headroom {

struct Traffic {
    std::string name;                       ///< "all-to-all over 8 (ulysses)", "copies to the host"
    std::array<Bytes, phase_count> sent{};  ///< by Phase; what stays on the GPU is not counted
    Bytes total() const;
};

/// Of a middle block; of the first where there is none.
std::vector<Traffic> block_traffic(const Schedule& schedule, const Topology& topology);

}  // namespace headroom
