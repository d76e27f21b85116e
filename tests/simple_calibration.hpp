// SPDX-License-Identifier: Apache-2.0
// Round constants for examples worked on paper: 1 TFLOP/s, 1 GB/s, whole milliseconds.
#pragma once

#include "simulator/calibration.hpp"
#include "simulator/topology.hpp"

namespace headroom {

inline Constant exactly(double value) { return {value, value, value, Source::assumed, "a test"}; }

inline Calibration simple_calibration() {
    Calibration calibration;
    calibration.name = "simple";
    calibration.architecture = "hopper";
    calibration.kind = "measured";
    calibration.datasheet = {1e12, 1e9, 1e9, 1e9, 1e9};
    for (auto& kernel : calibration.attention) {
        for (auto& direction : kernel.curves) {
            for (auto& curve : direction) {
                curve.asymptote = exactly(1e12);
                curve.longest = std::int64_t{1} << 40;
            }
        }
    }
    calibration.attention[static_cast<std::size_t>(AttentionKernel::fa2)].ring_overlap = Overlap::hidden;
    calibration.gemm.streaming_multiprocessors = 1;
    calibration.gemm.tile_rows = calibration.gemm.tile_columns = 1;
    calibration.gemm.points = {{1, 1, 1, exactly(1e12)}};
    calibration.memory.copy_rate = exactly(1e9);
    calibration.memory.share.fill(exactly(1.0));
    calibration.memory.kernel_start = exactly(1e-12);
    for (auto& link : calibration.links) {
        link.alpha = exactly(1e-12);
        link.alpha_idle = exactly(2e-12);
        link.rate = exactly(1e9);
        link.points = {{1e6, 1e-3}};
        link.ranks = 2;
    }
    calibration.across_nodes = {exactly(1e-12), exactly(1e8), exactly(1e8)};
    calibration.host = {exactly(1e9), exactly(1e9),  exactly(1.0),   exactly(1e8),   exactly(5e8),  exactly(5e8),
                        exactly(1e9), exactly(1e-6), exactly(1e-12), exactly(1e-12), exactly(1e-12)};
    calibration.collective_share = exactly(0.25);
    return calibration;
}

/// Two ranks in every group, inside one node.
inline Topology pair_topology() {
    Topology topology;
    topology.groups.fill({2, 2});
    topology.gpus_per_node = 1;
    return topology;
}

/// Runs `ms` milliseconds with the constants above: 1 MB at 1 GB/s.
inline Bytes milliseconds(double ms) { return {static_cast<std::int64_t>(ms * 1e6)}; }

}  // namespace headroom
