// SPDX-License-Identifier: Apache-2.0
#include "calibrate/cuda/nccl_mesh.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <future>
#include <thread>

#include "calibrate/cuda/errors.hpp"
#include "calibrate/cuda/gpu_thread.hpp"
#include "models/error.hpp"
#include "models/units.hpp"

namespace headroom {
namespace {

constexpr double patience_seconds = 60;

constexpr const char* nccl_hint =
    "NCCL_DEBUG=WARN in the environment says more; where multicast is refused, NCCL_NVLS_ENABLE=0 helps";

}  // namespace

std::string nccl_version_text() {
    int version = 0;
    check_nccl(ncclGetVersion(&version), "ncclGetVersion", 0);
    return fmt::format("{}.{}.{}", version / 10000, version / 100 % 100, version % 100);
}

void Rank::wait() const {
    const auto begin = std::chrono::steady_clock::now();
    for (const StreamOwner* stream : {compute.get(), transfer.get()}) {
        while (true) {
            const cudaError_t state = cudaStreamQuery(stream->get());
            if (state == cudaSuccess) break;
            if (state != cudaErrorNotReady) check_cuda(state, fmt::format("rank {}: cudaStreamQuery", index));
            ncclResult_t failure = ncclSuccess;
            check_nccl(ncclCommGetAsyncError(comm, &failure), "ncclCommGetAsyncError", index);
            check_nccl(failure, "a collective", index);
            if (std::chrono::steady_clock::now() - begin > std::chrono::duration<double>(patience_seconds)) {
                throw Error(fmt::format("rank {} waited {} s for its peers", index, patience_seconds), "", nccl_hint,
                            ExitCode::failure);
            }
        }
    }
}

std::string new_nccl_ids(int count) {
    std::string ids;
    for (int i = 0; i < count; ++i) {
        ncclUniqueId id;
        check_nccl(ncclGetUniqueId(&id), "ncclGetUniqueId", 0);
        ids.append(id.internal, sizeof id.internal);
    }
    return ids;
}

namespace {

/// ncclCommInitRank waits for all ranks and cannot be called off. It runs in a thread of its own, which is left behind
/// when a peer does not come.
ncclComm_t join(const std::string& bytes, int ranks, int rank, int gpu) {
    ncclUniqueId id;
    std::memcpy(id.internal, bytes.data(), sizeof id.internal);
    struct Outcome {
        ncclResult_t status;
        ncclComm_t comm;
        std::string last_error;
    };
    std::promise<Outcome> promise;
    std::future<Outcome> future = promise.get_future();
    std::thread([id, ranks, rank, gpu, promise = std::move(promise)]() mutable {
        Outcome outcome{ncclSystemError, nullptr, ""};
        if (cudaSetDevice(gpu) == cudaSuccess) outcome.status = ncclCommInitRank(&outcome.comm, ranks, id, rank);
        promise.set_value(outcome);
    }).detach();
    if (future.wait_for(std::chrono::duration<double>(patience_seconds)) != std::future_status::ready) {
        throw Error(fmt::format("rank {} waited {} s for its peers to join the communicator of {}", rank,
                                patience_seconds, ranks),
                    "", nccl_hint, ExitCode::failure);
    }
    const Outcome outcome = future.get();
    check_nccl(outcome.status, fmt::format("ncclCommInitRank among {}", ranks), rank);
    return outcome.comm;
}

}  // namespace

NcclMesh::NcclMesh(const MeshPlace& place, const std::string& id)
    : place_(place),
      ranks_(static_cast<std::size_t>(place.here())),
      team_(place.here(), [place](int thread) { enter_gpu(place.first_gpu + thread); }) {
    for (int i = 0; i < here(); ++i) {
        Rank& one = ranks_[static_cast<std::size_t>(i)];
        one.thread = i;
        one.index = place.first_rank + i;
    }
    run([](Rank& self) {
        self.compute = std::make_unique<StreamOwner>();
        self.transfer = std::make_unique<StreamOwner>();
        self.compute_hold = std::make_unique<StreamHold>();
        self.transfer_hold = std::make_unique<StreamHold>();
        for (auto* event : {&self.compute_begin, &self.compute_end, &self.transfer_begin, &self.transfer_end}) {
            *event = std::make_unique<EventOwner>();
        }
    });
    add_communicator(id);
}

void NcclMesh::add_communicator(const std::string& id) {
    run([&](Rank& self) {
        self.comm = join(id, place_.ranks, self.index, place_.first_gpu + self.thread);
        self.comms.push_back(self.comm);
    });
}

NcclMesh::~NcclMesh() {
    for (Rank& one : ranks_) {
        for (ncclComm_t comm : one.comms) ncclCommAbort(comm);  // never waits for a peer that is gone
    }
}

void NcclMesh::reserve(std::int64_t send, std::int64_t receive) {
    run([&](Rank& self) {
        self.wait();
        // Freed first: both generations might not fit.
        if (self.send.bytes() < send) self.send = DeviceBuffer();
        if (self.receive.bytes() < receive) self.receive = DeviceBuffer();
        if (self.send.bytes() == 0) self.send = DeviceBuffer(send);
        if (self.receive.bytes() == 0) self.receive = DeviceBuffer(receive);
    });
}

CollectiveBuffers buffers_of(CollectiveKind kind, std::int64_t bytes, int ranks) {
    switch (kind) {
        case CollectiveKind::all_gather:
            return {bytes / ranks, bytes};
        case CollectiveKind::reduce_scatter:
            return {bytes, bytes / ranks};
        default:
            return {bytes, bytes};
    }
}

void enqueue_collective(Rank& rank, CollectiveKind kind, std::int64_t bytes, int ranks) {
    if (kind == CollectiveKind::barrier) throw Error("a barrier is no probe", "", "", ExitCode::failure);
    enqueue_collective({rank.comm, rank.index, ranks}, kind, bytes, rank.send.as(), rank.receive.as(),
                       rank.transfer->get());
}

}  // namespace headroom
