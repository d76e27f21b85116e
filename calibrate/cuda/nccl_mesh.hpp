// SPDX-License-Identifier: Apache-2.0
// The GPUs of a group under NCCL: a thread for each GPU of this process; further processes may hold the rest.
#pragma once

#include <nccl.h>

#include <algorithm>
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

/// Ids for `count` communicators, as bytes that every process of the group must have. Made by one of them.
std::string new_nccl_ids(int count);

/// Which ranks of a group this process holds: its GPUs in their order, as far as the group reaches.
struct MeshPlace {
    int ranks;       ///< of the group
    int first_rank;  ///< of this process
    int first_gpu, gpus;
    int here() const { return std::clamp(ranks - first_rank, 0, gpus); }
};

/// What one thread drives.
struct Rank {
    int index = 0;                  ///< in the group
    int thread = 0;                 ///< in this process
    ncclComm_t comm = nullptr;      ///< the one collectives use: the last that was made
    std::vector<ncclComm_t> comms;  ///< all of them
    std::unique_ptr<StreamOwner> compute, transfer;
    std::unique_ptr<StreamHold> compute_hold, transfer_hold;
    std::unique_ptr<EventOwner> compute_begin, compute_end, transfer_begin, transfer_end;
    DeviceBuffer send, receive;

    /// Waits for both streams, at most 60 s; a peer that died or a failed transfer ends as an error with the rank.
    void wait() const;
};

class NcclMesh {
 public:
    /// `id`: of new_nccl_ids. Throws Error when there are fewer GPUs, NCCL refuses, or a peer does not come.
    NcclMesh(const MeshPlace& place, const std::string& id);
    ~NcclMesh();
    NcclMesh(const NcclMesh&) = delete;
    NcclMesh& operator=(const NcclMesh&) = delete;

    int size() const { return place_.ranks; }
    /// Ranks that this process holds.
    int here() const { return static_cast<int>(ranks_.size()); }
    /// action(rank) on every thread at once, with its GPU current.
    double run(const std::function<void(Rank&)>& action) {
        return team_.run([&](int i) { action(ranks_[static_cast<std::size_t>(i)]); });
    }
    /// One more communicator of the same ranks, for the collectives from here on.
    void add_communicator(const std::string& id);
    /// Send and receive buffers of at least that size on every GPU.
    void reserve(std::int64_t send, std::int64_t receive);

 private:
    MeshPlace place_;
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
