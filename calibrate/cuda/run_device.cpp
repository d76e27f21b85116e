// SPDX-License-Identifier: Apache-2.0
#include "calibrate/cuda/run_device.hpp"

#include <fmt/format.h>

#include <chrono>
#include <string_view>

#include "calibrate/cuda/errors.hpp"
#include "calibrate/cuda/nccl_transport.hpp"
#include "calibrate/cuda/run_start.hpp"

namespace headroom {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point begin) { return std::chrono::duration<double>(Clock::now() - begin).count(); }

}  // namespace

SyncEvent::SyncEvent() {
    check_cuda(cudaEventCreateWithFlags(&event_, cudaEventDisableTiming), "cudaEventCreateWithFlags");
}
SyncEvent::~SyncEvent() {
    if (event_ != nullptr) cudaEventDestroy(event_);
}

CudaRunDevice::CudaRunDevice(int gpu, int gpus, const Trouble& trouble, const std::atomic<bool>& aborted)
    : gpu_(gpu), trouble_(trouble), aborted_(aborted), pool_(gpu, gpus) {}

void CudaRunDevice::begin_case(const RankPlan& rank, const CommEnds& comms, double patience) {
    comms_ = comms;
    patience_ = patience;
    workspaces_.clear();
    meter_.on = false;
    while (syncs_.size() < rank.schedule.syncs) syncs_.emplace_back();
    recorded_on_.assign(rank.schedule.syncs, Stream::compute);
    const auto group = [&](CommGroup which) { return whole_group(comms[static_cast<std::size_t>(which)]); };
    arithmetic_.connect(std::make_unique<NcclTransport>(
        NcclTransport::Groups{group(CommGroup::ulysses), group(CommGroup::ring), group(CommGroup::sharding)}, gpu_));
    arithmetic_.prepare(rank.schedule);
}

void CudaRunDevice::begin_steps(const RankPlan& rank, const TensorTable& tensors) {
    fill_step(compute(), rank, tensors);
    for (const LiveTensor& tensor : tensors.all()) {
        const bool serves =
            std::string_view(tensor.name) == "cuBLAS workspaces" && tensor.bytes >= gemm_workspace_bytes;
        if (serves) arithmetic_.use_product_workspace(tensor.address);
    }
    arithmetic_.take_losses();
}

void CudaRunDevice::end_case() noexcept {
    arithmetic_.use_product_workspace(nullptr);
    pool_.trim();
}

void CudaRunDevice::drain(Stream which) {
    const auto begin = Clock::now();
    for (std::int64_t turn = 0;; ++turn) {
        const cudaError_t state = cudaStreamQuery(stream(which));
        if (state == cudaSuccess) return;
        if (state != cudaErrorNotReady) check_cuda(state, fmt::format("rank {}: cudaStreamQuery", gpu_));
        if (turn % 64 != 0) continue;
        trouble_.check();
        for (const CommEnd& end : comms_) {
            if (end.comm == nullptr) continue;
            ncclResult_t failure = ncclSuccess;
            check_nccl(ncclCommGetAsyncError(end.comm, &failure), "ncclCommGetAsyncError", gpu_);
            check_nccl(failure, "a collective", gpu_);
        }
        if (seconds_since(begin) > patience_) {
            throw Error(fmt::format("rank {} waited {:.0f} s on its {} stream", gpu_, patience_, to_string(which)), "",
                        "a peer may have died: NCCL_DEBUG=WARN and the kernel log (dmesg, Xid lines) may say more",
                        ExitCode::failure);
        }
    }
}

void CudaRunDevice::finish() {
    meter_.stop(compute());
    drain_all();
}

void CudaRunDevice::drain_all() {
    for (std::size_t i = 0; i < stream_count; ++i) drain(static_cast<Stream>(i));
}

void CudaRunDevice::settle() noexcept {
    // After trouble a kernel may wait for a peer until the communicators are aborted, which the fleet does soon.
    constexpr double most = 20;
    const auto begin = Clock::now();
    while (trouble_.any() && !aborted_ && seconds_since(begin) < most) {
    }
    for (std::size_t i = 0; i < stream_count; ++i) {
        while (cudaStreamQuery(stream(static_cast<Stream>(i))) == cudaErrorNotReady && seconds_since(begin) < most) {
        }
    }
}

void* CudaRunDevice::allocate(const LiveTensor& wanted) {
    trouble_.check();
    if (wanted.place != Place::device) return host_.allocate(wanted);
    try {
        return pool_.allocate(wanted.bytes, stream(wanted.stream));
    } catch (const MemoryFull&) {
        // Freed memory may lie in pieces, or wait for a stream: all of it back to the driver, and once more.
        drain_all();
        pool_.trim();
        return pool_.allocate(wanted.bytes, stream(wanted.stream));
    }
}

void CudaRunDevice::release(const LiveTensor& tensor) noexcept {
    if (tensor.place != Place::device) return host_.release(tensor);
    // Back to the stream it came from, as PyTorch does: that stream may have it again at once.
    pool_.release(tensor.address, stream(tensor.stream));
}

void CudaRunDevice::launch(const StreamLaunch& launch) {
    trouble_.check();
    const Event& event = launch.event;
    cudaStream_t on = stream(event.stream);
    if (meter_.on && event.kind == EventKind::attention) note_workspace(launch);
    meter_.begin(event, launch.phase, on);
    launch.compute(arithmetic_);
    meter_.end(on);
}

void CudaRunDevice::record(Stream on, SyncId sync) {
    check_cuda(cudaEventRecord(syncs_[sync].get(), stream(on)), "cudaEventRecord");
    meter_.recorded(on, sync);
    recorded_on_[sync] = on;
}

void CudaRunDevice::wait(Stream waiting, SyncId sync) {
    const bool timed = meter_.on && waiting == Stream::compute && recorded_on_[sync] != Stream::compute;
    if (timed) meter_.before_wait(sync, compute());
    check_cuda(cudaStreamWaitEvent(stream(waiting), syncs_[sync].get(), 0), "cudaStreamWaitEvent");
    if (timed) meter_.after_wait(compute());
}

void CudaRunDevice::host_work(const HostWork& work) {
    // Nanoseconds that the schedule names itself; the tokens of a batch are not read here.
    const double seconds = work.kind == HostWork::Kind::other ? static_cast<double>(work.amount) * 1e-9 : 0;
    const auto begin = Clock::now();
    while (seconds_since(begin) < seconds) trouble_.check();
}

void CudaRunDevice::enter_segment(std::uint32_t segment, std::uint32_t) { meter_.start_segment(segment, compute()); }

void CudaRunDevice::note_workspace(const StreamLaunch& launch) {
    const Attention& shape = launch.event.attention;
    for (const WorkspaceUse& use : workspaces_) {
        if (use.shape == shape) return;
    }
    WorkspaceUse use{shape, {arithmetic_.attention_bytes(shape)}, {}};
    for (const LiveTensor& tensor : launch.tensors.all()) {
        if (std::string_view(tensor.name).starts_with("attention kernel:")) use.scheduled.value += tensor.bytes;
    }
    workspaces_.push_back(use);
}

void CudaRunDevice::report(RankMeasurement& result, std::uint32_t segments) {
    result.rank = gpu_;
    result.pool_peak.value = pool_.most_used();
    result.pool_reserved.value = pool_.most_reserved();
    result.scratch.value = arithmetic_.scratch_bytes();
    result.pinned.value = host_.pinned_bytes();
    result.workspaces = workspaces_;
    std::size_t free = 0, total = 0;
    check_cuda(cudaMemGetInfo(&free, &total), "cudaMemGetInfo");
    result.outside.value = static_cast<std::int64_t>(total - free) - pool_.reserved() - arithmetic_.scratch_bytes();
    meter_.collect(segments, result.ops, result.segments);
    meter_.on = false;
}

}  // namespace headroom
