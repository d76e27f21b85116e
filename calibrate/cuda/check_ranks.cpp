// SPDX-License-Identifier: Apache-2.0
#include "calibrate/cuda/check_ranks.hpp"

#include <fmt/format.h>

#include <chrono>
#include <thread>

#include "calibrate/cuda/check_device.hpp"
#include "calibrate/cuda/collective.hpp"
#include "calibrate/cuda/errors.hpp"
#include "calibrate/meeting.hpp"
#include "models/error.hpp"

namespace headroom {
namespace {

using Clock = std::chrono::steady_clock;

struct Degrees {
    int ulysses, ring;
    int size() const { return ulysses * ring; }
    int first_of_group(int rank) const { return rank / ulysses * ulysses; }
    int next(int rank) const { return (rank + ulysses) % size(); }
    int before(int rank) const { return (rank + size() - ulysses) % size(); }
};

std::size_t size(std::int64_t bytes) { return static_cast<std::size_t>(bytes); }

/// Every rank on a GPU of its own.
class NcclTransport : public RankTransport {
 public:
    NcclTransport(const Degrees& degrees, int rank, ncclComm_t comm) : degrees_(degrees), rank_(rank), comm_(comm) {}

    void exchange(cudaStream_t stream, const ByteMove& move) override {
        const std::int64_t block = move.bytes / degrees_.ulysses;
        check_nccl(ncclGroupStart(), "ncclGroupStart", rank_);
        for (int i = 0; i < degrees_.ulysses; ++i) {
            const int peer = degrees_.first_of_group(rank_) + i;
            send(move.from + i * block, block, peer, stream);
            receive(move.to + i * block, block, peer, stream);
        }
        check_nccl(ncclGroupEnd(), "ncclGroupEnd", rank_);
    }
    void pass_on(cudaStream_t stream, std::span<const ByteMove> moves) override {
        check_nccl(ncclGroupStart(), "ncclGroupStart", rank_);
        for (const ByteMove& move : moves) {
            send(move.from, move.bytes, degrees_.next(rank_), stream);
            receive(move.to, move.bytes, degrees_.before(rank_), stream);
        }
        check_nccl(ncclGroupEnd(), "ncclGroupEnd", rank_);
    }
    void wait(cudaStream_t stream) override {
        constexpr double most = 60;
        const auto begin = Clock::now();
        for (cudaError_t state; (state = cudaStreamQuery(stream)) != cudaSuccess;) {
            if (state != cudaErrorNotReady) check_cuda(state, fmt::format("rank {}: cudaStreamQuery", rank_));
            ncclResult_t failure = ncclSuccess;
            check_nccl(ncclCommGetAsyncError(comm_, &failure), "ncclCommGetAsyncError", rank_);
            check_nccl(failure, "a collective", rank_);
            if (std::chrono::duration<double>(Clock::now() - begin).count() < most) continue;
            throw Error(fmt::format("rank {} waited {:.0f} s for its peers", rank_, most), "calibrate check",
                        "NCCL_DEBUG=WARN and the kernel log (dmesg, Xid lines) may say more", ExitCode::failure);
        }
    }

 private:
    void send(const std::byte* from, std::int64_t bytes, int peer, cudaStream_t stream) {
        check_nccl(ncclSend(from, size(bytes), ncclChar, peer, comm_, stream), "ncclSend", rank_);
    }
    void receive(std::byte* to, std::int64_t bytes, int peer, cudaStream_t stream) {
        check_nccl(ncclRecv(to, size(bytes), ncclChar, peer, comm_, stream), "ncclRecv", rank_);
    }

    Degrees degrees_;
    int rank_;
    ncclComm_t comm_;
};

class NcclRanks : public CheckRanks {
 public:
    NcclRanks(const Degrees& degrees, std::int64_t context)
        : degrees_(degrees), context_(context), comms_(static_cast<std::size_t>(degrees.size())) {
        ncclUniqueId id;
        check_nccl(ncclGetUniqueId(&id), "ncclGetUniqueId", 0);
        check_nccl(ncclGroupStart(), "ncclGroupStart", 0);
        for (int rank = 0; rank < degrees.size(); ++rank) {
            check_cuda(cudaSetDevice(rank), "cudaSetDevice");
            check_nccl(ncclCommInitRank(&comms_[static_cast<std::size_t>(rank)], degrees.size(), id, rank),
                       "ncclCommInitRank", rank);
        }
        check_nccl(ncclGroupEnd(), "ncclGroupEnd", 0);
    }
    ~NcclRanks() override { NcclRanks::give_up(); }
    NcclRanks(const NcclRanks&) = delete;
    NcclRanks& operator=(const NcclRanks&) = delete;

    std::unique_ptr<ComputeDevice> device(int rank, const Workload& work,
                                          std::vector<std::int64_t> positions) override {
        check_cuda(cudaSetDevice(rank), "cudaSetDevice");
        return std::make_unique<CheckDevice>(
            std::make_unique<NcclTransport>(degrees_, rank, comms_[static_cast<std::size_t>(rank)]),
            std::move(positions), context_, static_cast<int>(work.model.head_dim));
    }
    void give_up() override {
        for (ncclComm_t& comm : comms_) {
            if (comm != nullptr) ncclCommAbort(comm);
            comm = nullptr;
        }
    }
    std::string place() const override { return fmt::format("{} GPUs", degrees_.size()); }

 private:
    Degrees degrees_;
    std::int64_t context_;
    std::vector<ncclComm_t> comms_;
};

/// All ranks on the current GPU: what one offers, the others copy.
struct Board {
    Board(const Degrees& of) : degrees(of), meeting(of.size()), offered(static_cast<std::size_t>(of.size())) {}
    Degrees degrees;
    Meeting meeting;
    std::vector<std::vector<ByteMove>> offered;
};

class SharedTransport : public RankTransport {
 public:
    SharedTransport(Board& board, int rank) : board_(board), rank_(rank) {}

    void exchange(cudaStream_t stream, const ByteMove& move) override {
        const Degrees& degrees = board_.degrees;
        const std::int64_t block = move.bytes / degrees.ulysses;
        const int mine = rank_ % degrees.ulysses;
        share(stream, {&move, 1}, [&] {
            for (int i = 0; i < degrees.ulysses; ++i) {
                const ByteMove& sent = of(degrees.first_of_group(rank_) + i).front();
                copy(stream, move.to + i * block, sent.from + mine * block, block);
            }
        });
    }
    void pass_on(cudaStream_t stream, std::span<const ByteMove> moves) override {
        share(stream, moves, [&] {
            const std::vector<ByteMove>& sent = of(board_.degrees.before(rank_));
            for (std::size_t i = 0; i < moves.size(); ++i) copy(stream, moves[i].to, sent[i].from, moves[i].bytes);
        });
    }
    void wait(cudaStream_t stream) override { check_cuda(cudaStreamSynchronize(stream), "cudaStreamSynchronize"); }

 private:
    std::vector<ByteMove>& of(int rank) { return board_.offered[static_cast<std::size_t>(rank)]; }
    static void copy(cudaStream_t stream, std::byte* to, const std::byte* from, std::int64_t bytes) {
        check_cuda(cudaMemcpyAsync(to, from, size(bytes), cudaMemcpyDeviceToDevice, stream), "cudaMemcpyAsync");
    }
    template <class Copies>
    void share(cudaStream_t stream, std::span<const ByteMove> moves, Copies copies) {
        wait(stream);
        of(rank_).assign(moves.begin(), moves.end());
        board_.meeting.wait();
        copies();
        wait(stream);
        board_.meeting.wait();
    }

    Board& board_;
    int rank_;
};

class SharedRanks : public CheckRanks {
 public:
    SharedRanks(const Degrees& degrees, std::int64_t context) : board_(degrees), context_(context) {}
    std::unique_ptr<ComputeDevice> device(int rank, const Workload& work,
                                          std::vector<std::int64_t> positions) override {
        check_cuda(cudaSetDevice(0), "cudaSetDevice");
        return std::make_unique<CheckDevice>(std::make_unique<SharedTransport>(board_, rank), std::move(positions),
                                             context_, static_cast<int>(work.model.head_dim));
    }
    void give_up() override { board_.meeting.give_up(); }
    std::string place() const override { return "one GPU"; }

 private:
    Board board_;
    std::int64_t context_;
};

}  // namespace

int visible_gpus() {
    int count = 0;
    check_cuda(cudaGetDeviceCount(&count), "cudaGetDeviceCount");
    return count;
}

std::unique_ptr<CheckRanks> open_cuda_check_ranks(int ulysses, int ring, std::int64_t context) {
    const Degrees degrees{ulysses, ring};
    if (degrees.size() > 1 && degrees.size() <= visible_gpus()) return std::make_unique<NcclRanks>(degrees, context);
    return std::make_unique<SharedRanks>(degrees, context);
}

}  // namespace headroom
