// SPDX-License-Identifier: Apache-2.0
#include "calibrate/cuda/nccl_transport.hpp"

#include <fmt/format.h>

#include <chrono>
#include <numeric>

#include "calibrate/cuda/errors.hpp"
#include "models/error.hpp"

namespace headroom {
namespace {

using Clock = std::chrono::steady_clock;

std::size_t size(std::int64_t bytes) { return static_cast<std::size_t>(bytes); }

/// To the rank itself.
void keep(cudaStream_t stream, void* to, const void* from, std::int64_t bytes) {
    if (to == from) return;
    check_cuda(cudaMemcpyAsync(to, from, size(bytes), cudaMemcpyDeviceToDevice, stream), "cudaMemcpyAsync");
}

}  // namespace

CommMembers whole_group(const CommEnd& end) {
    CommMembers group{end.comm, std::vector<int>(static_cast<std::size_t>(end.ranks)), end.index};
    std::iota(group.peers.begin(), group.peers.end(), 0);
    return group;
}

void NcclTransport::send(const CommMembers& group, int place, const std::byte* from, std::int64_t bytes,
                         cudaStream_t stream) {
    const int peer = group.peers[static_cast<std::size_t>(place)];
    check_nccl(ncclSend(from, size(bytes), ncclChar, peer, group.comm, stream), "ncclSend", rank_);
}

void NcclTransport::receive(const CommMembers& group, int place, std::byte* to, std::int64_t bytes,
                            cudaStream_t stream) {
    const int peer = group.peers[static_cast<std::size_t>(place)];
    check_nccl(ncclRecv(to, size(bytes), ncclChar, peer, group.comm, stream), "ncclRecv", rank_);
}

void NcclTransport::exchange(cudaStream_t stream, const PlacedMove& move) {
    const CommMembers& group = groups_.ulysses;
    if (group.size() == 1) return keep(stream, move.to, move.from, move.bytes);
    const std::int64_t block = move.bytes / group.size();
    check_nccl(ncclGroupStart(), "ncclGroupStart", rank_);
    for (int place = 0; place < group.size(); ++place) {
        send(group, place, move.from + place * block, block, stream);
        receive(group, place, move.to + place * block, block, stream);
    }
    check_nccl(ncclGroupEnd(), "ncclGroupEnd", rank_);
}

void NcclTransport::pass_on(cudaStream_t stream, std::span<const PlacedMove> moves) {
    const CommMembers& group = groups_.ring;
    if (group.size() == 1) {
        for (const PlacedMove& move : moves) keep(stream, move.to, move.from, move.bytes);
        return;
    }
    check_nccl(ncclGroupStart(), "ncclGroupStart", rank_);
    for (const PlacedMove& move : moves) {
        send(group, (group.place + 1) % group.size(), move.from, move.bytes, stream);
        receive(group, (group.place + group.size() - 1) % group.size(), move.to, move.bytes, stream);
    }
    check_nccl(ncclGroupEnd(), "ncclGroupEnd", rank_);
}

void NcclTransport::gather(cudaStream_t stream, std::byte* whole, std::int64_t bytes) {
    const CommMembers& group = groups_.sharding;
    if (group.size() == 1) return;
    check_nccl(ncclAllGather(whole + group.place * bytes, whole, size(bytes), ncclChar, group.comm, stream),
               "ncclAllGather", rank_);
}

void NcclTransport::reduce_scatter(cudaStream_t stream, const float* whole, float* shard, std::int64_t elements) {
    const CommMembers& group = groups_.sharding;
    if (group.size() == 1) return keep(stream, shard, whole, 4 * elements);
    check_nccl(ncclReduceScatter(whole, shard, size(elements), ncclFloat, ncclSum, group.comm, stream),
               "ncclReduceScatter", rank_);
}

void NcclTransport::wait(cudaStream_t stream) {
    constexpr double most = 60;
    const auto begin = Clock::now();
    for (cudaError_t state; (state = cudaStreamQuery(stream)) != cudaSuccess;) {
        if (state != cudaErrorNotReady) check_cuda(state, fmt::format("rank {}: cudaStreamQuery", rank_));
        for (const CommMembers* group : {&groups_.ulysses, &groups_.ring, &groups_.sharding}) {
            if (group->comm == nullptr) continue;
            ncclResult_t failure = ncclSuccess;
            check_nccl(ncclCommGetAsyncError(group->comm, &failure), "ncclCommGetAsyncError", rank_);
            check_nccl(failure, "a collective", rank_);
        }
        if (std::chrono::duration<double>(Clock::now() - begin).count() < most) continue;
        throw Error(fmt::format("rank {} waited {:.0f} s for its peers", rank_, most), "",
                    "NCCL_DEBUG=WARN and the kernel log (dmesg, Xid lines) may say more", ExitCode::failure);
    }
}

}  // namespace headroom
