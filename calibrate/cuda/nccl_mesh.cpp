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

std::size_t size(std::int64_t bytes) { return static_cast<std::size_t>(bytes); }

}  // namespace

void check_nccl(ncclResult_t status, const std::string& call, int rank) {
    if (status == ncclSuccess || status == ncclInProgress) return;
    throw Error(fmt::format("rank {}: {} failed with {} ({}): {}", rank, call, ncclGetErrorString(status),
                            static_cast<int>(status), ncclGetLastError(nullptr)),
                "", nccl_hint, ExitCode::failure);
}

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
    const auto* send = rank.send.as<const char>();
    auto* receive = rank.receive.as<char>();
    cudaStream_t stream = rank.transfer->get();
    const std::int64_t part = bytes / ranks;
    switch (kind) {
        case CollectiveKind::all_to_all:
            check_nccl(ncclGroupStart(), "ncclGroupStart", rank.index);
            for (int peer = 0; peer < ranks; ++peer) {
                check_nccl(ncclSend(send + peer * part, size(part), ncclChar, peer, rank.comm, stream), "ncclSend",
                           rank.index);
                check_nccl(ncclRecv(receive + peer * part, size(part), ncclChar, peer, rank.comm, stream), "ncclRecv",
                           rank.index);
            }
            check_nccl(ncclGroupEnd(), "ncclGroupEnd", rank.index);
            break;
        case CollectiveKind::send_recv:
            check_nccl(ncclGroupStart(), "ncclGroupStart", rank.index);
            check_nccl(ncclSend(send, size(bytes), ncclChar, (rank.index + 1) % ranks, rank.comm, stream), "ncclSend",
                       rank.index);
            check_nccl(ncclRecv(receive, size(bytes), ncclChar, (rank.index + ranks - 1) % ranks, rank.comm, stream),
                       "ncclRecv", rank.index);
            check_nccl(ncclGroupEnd(), "ncclGroupEnd", rank.index);
            break;
        case CollectiveKind::all_gather:
            check_nccl(ncclAllGather(send, receive, size(part), ncclChar, rank.comm, stream), "ncclAllGather",
                       rank.index);
            break;
        case CollectiveKind::reduce_scatter:
            check_nccl(ncclReduceScatter(send, receive, size(part / 4), ncclFloat, ncclSum, rank.comm, stream),
                       "ncclReduceScatter", rank.index);
            break;
        case CollectiveKind::barrier:
            throw Error("a barrier is no probe", "", "", ExitCode::failure);
    }
}

}  // namespace headroom
