// SPDX-License-Identifier: Apache-2.0
// What a probe record says about the host it was taken on.
#pragma once

#include "calibrate/probe.hpp"

namespace headroom {

/// cpu, threads, numa_nodes, memory_bytes, kernel, huge_pages.
Json host_facts();
/// Every NCCL_, CUDA_ and NVSHMEM variable that is set.
Json environment_facts();
/// Bytes of host memory, by /proc/meminfo and the cgroup limit above it on machines whose memory grows with use.
std::int64_t host_memory_bytes();

/// UTC, "2026-11-30T08:15:00Z".
std::string utc_now();
double monotonic_seconds();

}  // namespace headroom
