// SPDX-License-Identifier: Apache-2.0
// A measurement of work on one stream: batches long enough for the clock to mean something, never so many launches
// that the held queue fills up.
#pragma once

#include <algorithm>

#include "calibrate/cuda/timer.hpp"
#include "calibrate/device.hpp"

namespace headroom {

class StreamMeasurement : public PreparedProbe {
 public:
    /// `launches`: kernels one enqueue() starts.
    explicit StreamMeasurement(int launches) : most_runs_(std::max(1, 400 / launches)) {}

    double run() final {
        last_runs_ = runs_;
        const double seconds = timer_.time(stream_.get(), runs_, [&](cudaStream_t stream) { enqueue(stream); });
        constexpr double batch_seconds = 0.02;
        if (seconds > 0) runs_ = std::clamp(static_cast<int>(batch_seconds / seconds), 1, most_runs_);
        return seconds;
    }

    /// Runs of the work in the last batch.
    int last_runs() const { return last_runs_; }
    cudaStream_t stream() const { return stream_.get(); }
    void synchronize() const { stream_.synchronize(); }

 protected:
    virtual void enqueue(cudaStream_t stream) = 0;

 private:
    StreamOwner stream_;
    BatchTimer timer_;
    int runs_ = 1, last_runs_ = 1, most_runs_;
};

}  // namespace headroom
