// SPDX-License-Identifier: Apache-2.0
// Device bytes that PyTorch's allocator never sees.
#pragma once

#include <vector>

#include "planner/plan.hpp"

namespace headroom {

/// CUDA context and NCCL communicators of a job, each a named term.
std::vector<OutsideTerm> outside_terms(const Cluster& cluster, const Recipe& recipe);
/// Their sum, without the names.
Bytes outside_bytes(const Cluster& cluster, const Recipe& recipe);
Bytes sum(const std::vector<OutsideTerm>& terms);

}  // namespace headroom
