// SPDX-License-Identifier: Apache-2.0
// Times a batch on a stream that is held until the host has enqueued all of it, so that no launch cost is inside.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <functional>

#include "calibrate/cuda/memory.hpp"

namespace headroom {

/// A kernel that spins until the host lets it go, or for a bounded time: a host that died leaves no busy GPU.
class StreamHold {
 public:
    StreamHold();
    void close(cudaStream_t stream);  ///< what is enqueued from here on waits
    void open();
    /// True when the kernel gave up before open(): the batch was not held, its time counts for nothing.
    bool timed_out() const;

 private:
    PinnedBuffer flags_;  ///< [0] opened by the host, [1] given up by the kernel
};

class BatchTimer {
 public:
    /// Seconds of `work`, `runs` times in a row, per run. The launch queue holds about 1000 entries; `runs` times the
    /// launches of one run must stay below that, or the host would wait for the held stream.
    double time(cudaStream_t stream, int runs, const std::function<void(cudaStream_t)>& work);

 private:
    StreamHold hold_;
    EventOwner begin_, end_;
};

/// Nanoseconds of the GPU's clock at begin and end of a kernel that spins for `spin_nanoseconds`.
struct Stamp {
    std::uint64_t begin, end;
};
void launch_stamp(cudaStream_t stream, Stamp* stamp, std::uint64_t spin_nanoseconds);
/// A kernel of `blocks` blocks that does nothing.
void launch_empty(cudaStream_t stream, int blocks);

}  // namespace headroom
