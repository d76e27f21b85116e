// SPDX-License-Identifier: Apache-2.0
// Collectives alone and beside attention, and the memory NCCL takes.
#pragma once

#include <memory>

#include "calibrate/cuda/nccl_mesh.hpp"
#include "calibrate/device.hpp"

namespace headroom {

std::unique_ptr<PreparedProbe> prepare_collective(std::shared_ptr<NcclMesh> mesh, const CollectiveProbe& probe);
/// `ids`: three, of new_nccl_ids.
std::unique_ptr<PreparedProbe> prepare_collective_memory(const MeshPlace& place, const std::string& ids);
std::unique_ptr<PreparedProbe> prepare_overlap(std::shared_ptr<NcclMesh> mesh, const OverlapProbe& probe);

}  // namespace headroom
