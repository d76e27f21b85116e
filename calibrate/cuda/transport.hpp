// SPDX-License-Identifier: Apache-2.0
// How a rank's computations reach the other ranks.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <span>

namespace headroom {

/// A Move with its addresses.
struct PlacedMove {
    const std::byte* from;
    std::byte* to;
    std::int64_t bytes;
};

/// Everything is enqueued on the stream, or done when a call returns.
class RankTransport {
 public:
    virtual ~RankTransport() = default;
    virtual void exchange(cudaStream_t stream, const PlacedMove& move) = 0;
    virtual void pass_on(cudaStream_t stream, std::span<const PlacedMove> moves) = 0;
    /// The rank's own part, `bytes` long, lies in its place of `whole` already.
    virtual void gather(cudaStream_t stream, std::byte* whole, std::int64_t bytes) = 0;
    /// Sums `whole`; the rank's part has `elements`.
    virtual void reduce_scatter(cudaStream_t stream, const float* whole, float* shard, std::int64_t elements) = 0;
    /// Place of the rank in its sharding group.
    virtual int place() const = 0;
    /// Waits for the stream; the error of a peer that died ends the wait.
    virtual void wait(cudaStream_t stream) = 0;
};

}  // namespace headroom
