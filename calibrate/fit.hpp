// SPDX-License-Identifier: Apache-2.0
// From probe records to the constants of a calibration. The same records give the same constants, in any order.
#pragma once

#include <string>
#include <vector>

#include "calibrate/probe_file.hpp"
#include "simulator/calibration.hpp"

namespace headroom {

/// A measured rate and the shape it was measured on.
struct AttentionPoint {
    std::string name;  ///< of the probe
    Attention shape;
    double rate;         ///< FLOP/s
    double seconds = 0;  ///< of one run
};

/// How well a curve keeps to its points; shares of the rate.
struct Residuals {
    double median = 0, worst = 0;
    double leave_one_out = 0;           ///< median error of a point predicted by a curve fitted without it
    std::vector<std::string> outliers;  ///< left out of the fit: "name: 12 % off"
    std::size_t points = 0;             ///< that were kept
};

struct CurveFit {
    AttentionCurve curve;
    Residuals residuals;
};

/// Least squares of the relative error: 1/R and s0^p/R are linear for each p, fall and tail, which come from grids.
/// `tail` is tried only for causal points. Throws Error with fewer than four points.
CurveFit fit_attention(const std::vector<AttentionPoint>& points, int streaming_multiprocessors);

/// One rate of a table, from every probe of that width and height.
struct GemmFit {
    GemmPoint point;
    std::size_t probes;
};

/// A kind of collective among so many GPUs. `residuals` are of a size read from the table without it, `line` those of
/// a start-up and a rate alone.
struct LinkFit {
    CollectiveKind kind;
    int nodes;  ///< 1: inside a node
    LinkCurve curve;
    Residuals residuals, line;
};

/// Device bytes outside a framework's allocator.
struct DeviceMemoryFit {
    std::int64_t context = 0;       ///< CUDA's, before anything is launched; 0: not probed
    int ranks = 0;                  ///< of the probe of NCCL; 0: not probed
    std::int64_t communicator = 0;  ///< of all ranks, after its first gather and scatter
    std::int64_t group = 0;         ///< of a further communicator, before its peers
    std::int64_t peer_buffer = 0;   ///< per peer of its first all-to-all
};

struct HostFit {
    const char* key;  ///< in the calibration's host map
    Constant constant;
};

struct FitResult {
    int streaming_multiprocessors = 0;
    std::string machine, software;                             ///< for comments: "NVIDIA H200", "cuDNN 9.19.0, ..."
    std::vector<std::pair<bool, CurveFit>> forward, backward;  ///< by mask: causal or not
    double head_dim_64 = 0, head_dim_256 = 0;                  ///< relative to 128; 0: not probed
    std::vector<GemmFit> gemm;                                 ///< by n, then m
    Constant copy_rate, kernel_start, epilogue;                ///< value 0: not probed
    std::vector<std::pair<MemoryKernel, Constant>> shares;
    std::vector<HostFit> host;
    std::vector<LinkFit> links;                  ///< by kind, nodes, ranks
    Constant across_alpha, nic_rate, ring_rate;  ///< value 0: not probed
    Constant exposed_collective_first, exposed_attention_first, collective_share;
    DeviceMemoryFit memory;
    int gpus = 1;  ///< of the largest machine among the files
    std::int64_t gpu_bytes = 0, host_bytes = 0;
    std::vector<std::string> files;     ///< names of the probe files
    std::vector<std::string> left_out;  ///< failed probes, and clocks that fell
    std::vector<std::string> remarks;   ///< for comments
};

/// Throws Error when the files hold no finished probe or come from different machines.
FitResult fit_probes(const std::vector<ProbeFile>& files);

/// A calibration file on top of `base`: what was probed is MEASURED or FITTED, the rest is the base's.
std::string calibration_text(const FitResult& fit, const Calibration& base, const std::string& machine);

/// A cluster file on top of the built-in cluster `base`: the machine's GPUs, its memory, and NCCL's bytes outside the
/// allocator where they were probed.
std::string cluster_text(const FitResult& fit, const std::string& base);

}  // namespace headroom
