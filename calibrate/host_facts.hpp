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

/// The same for all processes of one node, another on every node: a hash of the kernel's boot id.
std::string node_identity();
/// 16 hex digits that tell two texts apart and give neither away (FNV-1a).
std::string short_hash(const std::string& text);

/// UTC, "2026-11-30T08:15:00Z".
std::string utc_now();
double monotonic_seconds();

}  // namespace headroom
