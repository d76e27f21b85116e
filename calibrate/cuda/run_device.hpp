// SPDX-License-Identifier: Apache-2.0
// One GPU of a run: its streams, its memory and its kernels behind the interface that a schedule is executed on. Every
// call is made by the rank's own thread, with the GPU current.
#pragma once

#include <array>
#include <atomic>
#include <vector>

#include "calibrate/run/fleet.hpp"

#include "calibrate/cuda/collective.hpp"
#include "calibrate/cuda/cuda_arithmetic.hpp"
#include "calibrate/cuda/run_memory.hpp"
#include "calibrate/cuda/run_meter.hpp"
#include "calibrate/run/trouble.hpp"
#include "calibrate/runner.hpp"

namespace headroom {

/// A record on a stream that others wait for; it keeps no time.
class SyncEvent {
 public:
    SyncEvent();
    ~SyncEvent();
    SyncEvent(SyncEvent&& other) noexcept : event_(std::exchange(other.event_, nullptr)) {}
    SyncEvent& operator=(SyncEvent&&) = delete;
    cudaEvent_t get() const { return event_; }

 private:
    cudaEvent_t event_ = nullptr;
};

/// A case's communicators as one rank sees them, by CommGroup.
using CommEnds = std::array<CommEnd, 4>;

class CudaRunDevice : public RunDevice {
 public:
    CudaRunDevice(int gpu, int gpus, const Trouble& trouble, const std::atomic<bool>& aborted);

    /// Makes plans; `patience` is the longest that a wait for the GPU may take, in seconds.
    void begin_case(const RankPlan& rank, const CommEnds& comms, double patience);
    /// Fills the tensors of the set-up, all of which are alive.
    void begin_steps(const RankPlan& rank, const TensorTable& tensors);
    /// Sum over all rows since the last call, after finish().
    double take_loss() { return arithmetic_.take_losses(); }
    /// Waits until all streams have run dry. Throws Error: a fault of the GPU or of NCCL, a wait beyond the patience.
    void finish();
    /// Gives what a case no longer needs back to the driver.
    void end_case() noexcept;

    void measure_ops(bool on) { meter_.on = on; }
    void reset_peak() { pool_.reset_marks(); }
    /// Fills in what the device knows of the steps since reset_peak().
    void report(RankMeasurement& result, std::uint32_t segments);

    void* allocate(const LiveTensor& wanted) override;
    void release(const LiveTensor& tensor) noexcept override;
    void launch(const StreamLaunch& launch) override;
    void record(Stream stream, SyncId sync) override;
    void wait(Stream stream, SyncId sync) override;
    void host_wait(Stream stream) override { drain(stream); }
    void host_work(const HostWork& work) override;
    void enter_segment(std::uint32_t segment, std::uint32_t repetition) override;
    void settle() noexcept override;

 private:
    cudaStream_t stream(Stream which) const { return arithmetic_.stream(which); }
    cudaStream_t compute() const { return stream(Stream::compute); }
    void drain(Stream which);
    void drain_all();
    void note_workspace(const StreamLaunch& launch);

    int gpu_;
    const Trouble& trouble_;
    const std::atomic<bool>& aborted_;  ///< the communicators are, so nothing on a stream waits for a peer
    DevicePool pool_;
    HostBuffers host_;
    CudaArithmetic arithmetic_;
    RunMeter meter_;
    std::vector<SyncEvent> syncs_;
    std::vector<Stream> recorded_on_;  ///< by SyncId
    CommEnds comms_{};
    double patience_ = 60;
    std::vector<WorkspaceUse> workspaces_;
};

}  // namespace headroom
