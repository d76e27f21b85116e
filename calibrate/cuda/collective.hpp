// SPDX-License-Identifier: Apache-2.0
// Collectives through NCCL on any communicator and any buffers.
#pragma once

#include <cuda_runtime_api.h>
#include <nccl.h>

#include <cstdint>
#include <string>

#include "models/schedule.hpp"

namespace headroom {

/// Throws Error with the rank unless the call succeeded.
void check_nccl(ncclResult_t status, const std::string& call, int rank);

/// One rank's end of a communicator.
struct CommEnd {
    ncclComm_t comm = nullptr;
    int index = 0;  ///< its place
    int ranks = 1;
};

/// all_to_all and send_recv are groups of sends and receives; reduce_scatter adds fp32. `bytes` as in Collective.
void enqueue_collective(const CommEnd& end, CollectiveKind kind, std::int64_t bytes, const void* send, void* receive,
                        cudaStream_t stream);

}  // namespace headroom
