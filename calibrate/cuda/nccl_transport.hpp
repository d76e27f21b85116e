// SPDX-License-Identifier: Apache-2.0
// Ranks on GPUs of their own, through NCCL.
#pragma once

#include <vector>

#include "calibrate/cuda/collective.hpp"
#include "calibrate/cuda/transport.hpp"

namespace headroom {

/// A group of ranks as one of them sees it.
struct CommMembers {
    ncclComm_t comm = nullptr;  ///< null for a group of one
    std::vector<int> peers;     ///< of each place in the group, the number in the communicator
    int place = 0;              ///< of the rank itself
    int size() const { return static_cast<int>(peers.size()); }
};

/// All members of the communicator, in their order.
CommMembers whole_group(const CommEnd& end);

class NcclTransport : public RankTransport {
 public:
    struct Groups {
        CommMembers ulysses, ring;
        CommMembers sharding;  ///< all of its communicator, in the order of places
    };
    /// `rank` is for messages.
    NcclTransport(Groups groups, int rank) : groups_(std::move(groups)), rank_(rank) {}

    void exchange(cudaStream_t stream, const PlacedMove& move) override;
    void pass_on(cudaStream_t stream, std::span<const PlacedMove> moves) override;
    void gather(cudaStream_t stream, std::byte* whole, std::int64_t bytes) override;
    void reduce_scatter(cudaStream_t stream, const float* whole, float* shard, std::int64_t elements) override;
    int place() const override { return groups_.sharding.place; }
    /// At most a minute.
    void wait(cudaStream_t stream) override;

 private:
    void send(const CommMembers& group, int place, const std::byte* from, std::int64_t bytes, cudaStream_t stream);
    void receive(const CommMembers& group, int place, std::byte* to, std::int64_t bytes, cudaStream_t stream);

    Groups groups_;
    int rank_;
};

}  // namespace headroom
