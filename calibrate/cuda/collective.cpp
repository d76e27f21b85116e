// SPDX-License-Identifier: Apache-2.0
#include "calibrate/cuda/collective.hpp"

#include <fmt/format.h>

#include "models/error.hpp"

namespace headroom {
namespace {

std::size_t size(std::int64_t bytes) { return static_cast<std::size_t>(bytes); }

}  // namespace

void check_nccl(ncclResult_t status, const std::string& call, int rank) {
    if (status == ncclSuccess || status == ncclInProgress) return;
    throw Error(fmt::format("rank {}: {} failed with {} ({}): {}", rank, call, ncclGetErrorString(status),
                            static_cast<int>(status), ncclGetLastError(nullptr)),
                "",
                "NCCL_DEBUG=WARN in the environment says more; where multicast is refused, NCCL_NVLS_ENABLE=0 helps",
                ExitCode::failure);
}

void enqueue_collective(const CommEnd& end, CollectiveKind kind, std::int64_t bytes, const void* send, void* receive,
                        cudaStream_t stream) {
    const auto* from = static_cast<const char*>(send);
    auto* to = static_cast<char*>(receive);
    const int ranks = end.ranks, me = end.index;
    const std::int64_t part = bytes / ranks;
    switch (kind) {
        case CollectiveKind::all_to_all:
            check_nccl(ncclGroupStart(), "ncclGroupStart", me);
            for (int peer = 0; peer < ranks; ++peer) {
                check_nccl(ncclSend(from + peer * part, size(part), ncclChar, peer, end.comm, stream), "ncclSend", me);
                check_nccl(ncclRecv(to + peer * part, size(part), ncclChar, peer, end.comm, stream), "ncclRecv", me);
            }
            check_nccl(ncclGroupEnd(), "ncclGroupEnd", me);
            break;
        case CollectiveKind::send_recv:
            check_nccl(ncclGroupStart(), "ncclGroupStart", me);
            check_nccl(ncclSend(from, size(bytes), ncclChar, (me + 1) % ranks, end.comm, stream), "ncclSend", me);
            check_nccl(ncclRecv(to, size(bytes), ncclChar, (me + ranks - 1) % ranks, end.comm, stream), "ncclRecv", me);
            check_nccl(ncclGroupEnd(), "ncclGroupEnd", me);
            break;
        case CollectiveKind::all_gather:
            check_nccl(ncclAllGather(from, to, size(part), ncclChar, end.comm, stream), "ncclAllGather", me);
            break;
        case CollectiveKind::reduce_scatter:
            check_nccl(ncclReduceScatter(from, to, size(part / 4), ncclFloat, ncclSum, end.comm, stream),
                       "ncclReduceScatter", me);
            break;
        case CollectiveKind::barrier:
            check_nccl(ncclAllReduce(from, to, 1, ncclFloat, ncclSum, end.comm, stream), "ncclAllReduce", me);
            break;
    }
}

}  // namespace headroom
