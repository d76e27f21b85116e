// SPDX-License-Identifier: Apache-2.0
// What the streams of one rank do while a middle block runs: forward, then recomputed and backward.
#pragma once

#include <string_view>
#include <vector>

#include "models/workload.hpp"
#include "simulator/timeline.hpp"

namespace headroom {

struct Evaluator;

struct LayerTimeline {
    struct Span {
        Stream stream;
        Part part;
        double start, length;  ///< seconds from the start of its pass
    };
    struct Pass {
        std::string_view name;  ///< "forward", "recompute and backward"
        double seconds = 0;
        std::vector<Span> spans;  ///< neighbours of one part that no eye could tell apart are one
    };
    std::vector<Pass> passes;
};

/// Of a block amid others like it, in the steady state; no passes for models
/// of fewer than three layers.
LayerTimeline layer_timeline(const Transformer& model, const Cluster& cluster, const Recipe& recipe, RingRole role,
                             const Calibration& calibration, Evaluator& evaluator);

}  // namespace headroom
