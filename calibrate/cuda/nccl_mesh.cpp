// SPDX-License-Identifier: Apache-2.0
#include "calibrate/cuda/nccl_mesh.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>

#include "calibrate/cuda/errors.hpp"
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

NcclMesh::NcclMesh(int ranks)
    : ranks_(static_cast<std::size_t>(ranks)),
      team_(ranks, [](int gpu) { check_cuda(cudaSetDevice(gpu), "cudaSetDevice"); }) {
    int gpus = 0;
    check_cuda(cudaGetDeviceCount(&gpus), "cudaGetDeviceCount");
    if (gpus < ranks) {
        throw Error(fmt::format("{} GPUs are needed, {} are visible", ranks, gpus), "",
                    "check CUDA_VISIBLE_DEVICES, or skip the collectives", ExitCode::failure);
    }
    std::vector<ncclComm_t> comms(static_cast<std::size_t>(ranks));
    check_nccl(ncclCommInitAll(comms.data(), ranks, nullptr), fmt::format("ncclCommInitAll of {} GPUs", ranks), 0);
    for (int i = 0; i < ranks; ++i) {
        rank(i).index = i;
        rank(i).comm = comms[static_cast<std::size_t>(i)];
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
}

NcclMesh::~NcclMesh() {
    for (Rank& one : ranks_) {
        if (one.comm != nullptr) ncclCommAbort(one.comm);  // never waits for a peer that is gone
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
