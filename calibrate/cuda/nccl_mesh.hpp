// SPDX-License-Identifier: Apache-2.0
// The GPUs of this machine under NCCL: one process, a thread for each GPU.
#pragma once

#include <nccl.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "calibrate/cuda/collective.hpp"
#include "calibrate/cuda/memory.hpp"
#include "calibrate/cuda/timer.hpp"
#include "calibrate/team.hpp"
#include "models/schedule.hpp"

namespace headroom {

/// "2.28.3"
std::string nccl_version_text();

/// What one thread drives.
struct Rank {
    int index = 0;
    ncclComm_t comm = nullptr;
    std::unique_ptr<StreamOwner> compute, transfer;
    std::unique_ptr<StreamHold> compute_hold, transfer_hold;
    std::unique_ptr<EventOwner> compute_begin, compute_end, transfer_begin, transfer_end;
    DeviceBuffer send, receive;

    /// Waits for both streams, at most 60 s; a peer that died or a failed transfer ends as an error with the rank.
    void wait() const;
};

class NcclMesh {
 public:
    /// Throws Error when there are fewer GPUs, or NCCL refuses.
    explicit NcclMesh(int ranks);
    ~NcclMesh();
    NcclMesh(const NcclMesh&) = delete;
    NcclMesh& operator=(const NcclMesh&) = delete;

    int size() const { return static_cast<int>(ranks_.size()); }
    Rank& rank(int index) { return ranks_[static_cast<std::size_t>(index)]; }
    /// action(rank) on every thread at once, with its GPU current.
    double run(const std::function<void(Rank&)>& action) {
        return team_.run([&](int i) { action(rank(i)); });
    }
    /// Send and receive buffers of at least that size on every GPU.
    void reserve(std::int64_t send, std::int64_t receive);

 private:
    std::vector<Rank> ranks_;
    Team team_;
};

/// Bytes each rank sends from and receives into, for Collective::bytes.
struct CollectiveBuffers {
    std::int64_t send, receive;
};
CollectiveBuffers buffers_of(CollectiveKind kind, std::int64_t bytes, int ranks);

/// Enqueues on the rank's transfer stream, from rank.send to rank.receive.
void enqueue_collective(Rank& rank, CollectiveKind kind, std::int64_t bytes, int ranks);

}  // namespace headroom
