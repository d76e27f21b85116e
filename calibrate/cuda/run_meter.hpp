// SPDX-License-Identifier: Apache-2.0
// Times every launch of one step between two events on its stream, and how long the compute stream waits for what.
#pragma once

#include <memory>
#include <vector>

#include "calibrate/cuda/memory.hpp"
#include "calibrate/run/fleet.hpp"

namespace headroom {

class RunMeter {
 public:
    bool on = false;

    void start_segment(std::uint32_t segment, cudaStream_t compute);
    void begin(const Event& event, Phase phase, cudaStream_t stream);
    void end(cudaStream_t stream);
    /// The record of `sync` stands behind the last launch on that stream.
    void recorded(Stream stream, SyncId sync);
    void before_wait(SyncId sync, cudaStream_t compute);
    void after_wait(cudaStream_t compute);
    /// The end of the last segment.
    void stop(cudaStream_t compute);
    /// After stop(), and all streams have run dry: reads the events and forgets them.
    void collect(std::uint32_t segments, std::vector<MeasuredOp>& ops, std::vector<double>& seconds);

 private:
    static constexpr std::size_t none = ~std::size_t{0};
    struct Interval {
        std::size_t op, begin, end;  ///< indices into ops_ and events_
        bool waits;
    };
    struct Mark {
        std::uint32_t segment;
        std::size_t event;
    };
    std::size_t stamp(cudaStream_t stream);
    std::size_t op_of(const Event& event, Phase phase);
    double between(std::size_t begin, std::size_t end) const;

    std::vector<std::unique_ptr<EventOwner>> events_;  ///< kept from step to step
    std::size_t used_ = 0;
    std::vector<MeasuredOp> ops_;
    std::vector<Interval> intervals_;
    std::vector<Mark> marks_;
    std::size_t stopped_ = 0;                       ///< event of stop()
    std::array<std::size_t, stream_count> last_{};  ///< op launched last on each stream
    std::vector<std::size_t> behind_;               ///< by SyncId: the op that its record stands behind
};

}  // namespace headroom
