// SPDX-License-Identifier: Apache-2.0
#include "calibrate/cuda/check_ranks.hpp"

#include <fmt/format.h>

#include "calibrate/cuda/check_device.hpp"
#include "calibrate/cuda/errors.hpp"
#include "calibrate/cuda/nccl_transport.hpp"
#include "calibrate/cuda/schedule_kernels.hpp"
#include "calibrate/meeting.hpp"
#include "models/error.hpp"

namespace headroom {
namespace {

struct Degrees {
    int ulysses, ring;
    int size() const { return ulysses * ring; }
    int first_of_group(int rank) const { return rank / ulysses * ulysses; }
    int before(int rank) const { return (rank + size() - ulysses) % size(); }
};

class NcclRanks : public CheckRanks {
 public:
    explicit NcclRanks(const Degrees& degrees) : degrees_(degrees), comms_(static_cast<std::size_t>(degrees.size())) {
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

    std::unique_ptr<ComputeDevice> device(int rank) override {
        check_cuda(cudaSetDevice(rank), "cudaSetDevice");
        return std::make_unique<CheckDevice>(std::make_unique<NcclTransport>(groups_of(rank), rank));
    }
    void give_up() override {
        for (ncclComm_t& comm : comms_) {
            if (comm != nullptr) ncclCommAbort(comm);
            comm = nullptr;
        }
    }
    std::string place() const override { return fmt::format("{} GPUs", degrees_.size()); }

 private:
    NcclTransport::Groups groups_of(int rank) const {
        ncclComm_t comm = comms_[static_cast<std::size_t>(rank)];
        CommMembers ulysses{comm, {}, rank % degrees_.ulysses}, ring{comm, {}, rank / degrees_.ulysses};
        for (int i = 0; i < degrees_.ulysses; ++i) ulysses.peers.push_back(degrees_.first_of_group(rank) + i);
        for (int i = 0; i < degrees_.ring; ++i) ring.peers.push_back(rank % degrees_.ulysses + i * degrees_.ulysses);
        return {std::move(ulysses), std::move(ring), whole_group({comm, rank, degrees_.size()})};
    }

    Degrees degrees_;
    std::vector<ncclComm_t> comms_;
};

/// All ranks on the current GPU: what one offers, the others copy.
struct Board {
    explicit Board(const Degrees& of) : degrees(of), meeting(of.size()), offered(static_cast<std::size_t>(of.size())) {}
    Degrees degrees;
    Meeting meeting;
    std::vector<std::vector<PlacedMove>> offered;
};

class SharedTransport : public RankTransport {
 public:
    SharedTransport(Board& board, int rank) : board_(board), rank_(rank) {}

    void exchange(cudaStream_t stream, const PlacedMove& move) override {
        const Degrees& degrees = board_.degrees;
        const std::int64_t block = move.bytes / degrees.ulysses;
        const int mine = rank_ % degrees.ulysses;
        share(stream, {&move, 1}, [&] {
            for (int i = 0; i < degrees.ulysses; ++i) {
                const PlacedMove& sent = of(degrees.first_of_group(rank_) + i).front();
                copy(stream, move.to + i * block, sent.from + mine * block, block);
            }
        });
    }
    void pass_on(cudaStream_t stream, std::span<const PlacedMove> moves) override {
        share(stream, moves, [&] {
            const std::vector<PlacedMove>& sent = of(board_.degrees.before(rank_));
            for (std::size_t i = 0; i < moves.size(); ++i) copy(stream, moves[i].to, sent[i].from, moves[i].bytes);
        });
    }
    void gather(cudaStream_t stream, std::byte* whole, std::int64_t bytes) override {
        const PlacedMove mine{whole, nullptr, bytes};
        share(stream, {&mine, 1}, [&] {
            for (int rank = 0; rank < board_.degrees.size(); ++rank) {
                if (rank == rank_) continue;
                copy(stream, whole + rank * bytes, of(rank).front().from + rank * bytes, bytes);
            }
        });
    }
    void reduce_scatter(cudaStream_t stream, const float* whole, float* shard, std::int64_t elements) override {
        const PlacedMove mine{reinterpret_cast<const std::byte*>(whole), nullptr, 0};
        share(stream, {&mine, 1}, [&] {
            for (int rank = 0; rank < board_.degrees.size(); ++rank) {
                const float* term = reinterpret_cast<const float*>(of(rank).front().from) + rank_ * elements;
                add_floats(stream, rank == 0 ? nullptr : shard, term, shard, elements);
            }
        });
    }
    int place() const override { return rank_; }
    void wait(cudaStream_t stream) override { check_cuda(cudaStreamSynchronize(stream), "cudaStreamSynchronize"); }

 private:
    std::vector<PlacedMove>& of(int rank) { return board_.offered[static_cast<std::size_t>(rank)]; }
    static void copy(cudaStream_t stream, std::byte* to, const std::byte* from, std::int64_t bytes) {
        check_cuda(cudaMemcpyAsync(to, from, static_cast<std::size_t>(bytes), cudaMemcpyDeviceToDevice, stream),
                   "cudaMemcpyAsync");
    }
    template <class Copies>
    void share(cudaStream_t stream, std::span<const PlacedMove> moves, Copies copies) {
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
    explicit SharedRanks(const Degrees& degrees) : board_(degrees) {}
    std::unique_ptr<ComputeDevice> device(int rank) override {
        check_cuda(cudaSetDevice(0), "cudaSetDevice");
        return std::make_unique<CheckDevice>(std::make_unique<SharedTransport>(board_, rank));
    }
    void give_up() override { board_.meeting.give_up(); }
    std::string place() const override { return "one GPU"; }

 private:
    Board board_;
};

}  // namespace

int visible_gpus() {
    int count = 0;
    check_cuda(cudaGetDeviceCount(&count), "cudaGetDeviceCount");
    return count;
}

std::unique_ptr<CheckRanks> open_cuda_check_ranks(int ulysses, int ring) {
    const Degrees degrees{ulysses, ring};
    if (degrees.size() > 1 && degrees.size() <= visible_gpus()) return std::make_unique<NcclRanks>(degrees);
    return std::make_unique<SharedRanks>(degrees);
}

}  // namespace headroom
