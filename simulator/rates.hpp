// SPDX-License-Identifier: Apache-2.0
// Laws from constants to the duration of one kernel or transfer, alone on an idle machine. Seconds.
#pragma once

#include "simulator/calibration.hpp"
#include "simulator/topology.hpp"

namespace headroom {

/// Multiply-adds times two that the mask leaves: 4*b*H*Sq*Skv*d forward, halved when causal, 2.5 times that backward.
double attention_flops(const Attention& shape);
/// FLOP/s of the kernel at this shape.
double attention_rate(const AttentionKernelConstants& kernel, const Attention& shape, int streaming_multiprocessors);
double attention_seconds(const Calibration& calibration, AttentionKernel kernel, const Attention& shape);

/// Share of the last wave that works: tiles / (waves * SMs). Shapes with fewer tiles than SMs are split along k.
double wave_efficiency(const GemmConstants& constants, std::int64_t m, std::int64_t n, std::int64_t k);
/// FLOP/s, from the table.
double gemm_rate(const GemmConstants& constants, std::int64_t m, std::int64_t n, std::int64_t k);
/// All launches of the op; never faster than the bytes of its three matrices at the copy rate.
double gemm_seconds(const Calibration& calibration, const Gemm& shape);

double memory_bound_seconds(const Calibration& calibration, const MemoryBound& op);

/// Log-log interpolation in a table of (bytes, seconds); at a constant rate beyond either end.
double table_seconds(const std::vector<LinkPoint>& points, double bytes);
/// The curve measured on that many GPUs of a node, or else the largest group's.
const LinkCurve& link_of(const Calibration& calibration, CollectiveKind kind, int ranks);
/// With the host ahead: start-up and transfer.
double collective_seconds(const Calibration& calibration, const Collective& op, const GroupShape& group);
/// What the host spends to launch it; on an idle stream this is what adds up to the idle start-up.
double collective_launch_seconds(const Calibration& calibration, CollectiveKind kind);

double copy_seconds(const Calibration& calibration, const Copy& op, int gpus_per_node);
double host_work_seconds(const Calibration& calibration, const HostWork& op);

}  // namespace headroom
