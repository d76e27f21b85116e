// SPDX-License-Identifier: Apache-2.0
// Collectives alone and beside attention, and the memory NCCL takes.
#pragma once

#include <memory>

#include "calibrate/cuda/nccl_mesh.hpp"
#include "calibrate/device.hpp"

namespace headroom {

/// Communicators made once and used by all probes of one size.
using MeshSource = std::function<std::shared_ptr<NcclMesh>(int ranks)>;

std::unique_ptr<Measurement> prepare_collective(const MeshSource& mesh, const CollectiveProbe& probe);
std::unique_ptr<Measurement> prepare_collective_memory(const CollectiveMemoryProbe& probe);
std::unique_ptr<Measurement> prepare_overlap(const MeshSource& mesh, const OverlapProbe& probe);

}  // namespace headroom
