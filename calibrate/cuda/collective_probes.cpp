// SPDX-License-Identifier: Apache-2.0
#include "calibrate/cuda/collective_probes.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <thread>

#include "calibrate/cuda/attention_probe.hpp"
#include "calibrate/cuda/errors.hpp"
#include "calibrate/cuda/samples.hpp"

namespace headroom {
namespace {

void record(const EventOwner& event, const StreamOwner& stream) {
    check_cuda(cudaEventRecord(event.get(), stream.get()), "cudaEventRecord");
}

/// The largest of the ranks' times.
class Slowest {
 public:
    void add(double seconds) {
        double now = seconds_.load();
        while (now < seconds && !seconds_.compare_exchange_weak(now, seconds)) {
        }
    }
    double get() const { return seconds_.load(); }

 private:
    std::atomic<double> seconds_{0};
};

class CollectiveMeasurement : public PreparedProbe {
 public:
    CollectiveMeasurement(std::shared_ptr<NcclMesh> mesh, const CollectiveProbe& probe)
        : mesh_(std::move(mesh)), probe_(probe) {
        // By the size alone: every process of the group must enqueue as many. A batch takes about 10 ms on NVLink.
        runs_ = std::clamp(static_cast<int>(0.01 / (15e-6 + bytes_sent(probe) / 300e9)), 1, 100);
        const CollectiveBuffers buffers = buffers_of(probe.kind, probe.bytes, probe.ranks);
        mesh_->reserve(buffers.send, buffers.receive);
        // A rank's numbers follow from rank and place, so that every place can be checked; small whole numbers add
        // without rounding.
        fill_whole(buffers.send / 4);
    }

    double run() override {
        Slowest slowest;
        if (probe_.idle) {
            mesh_->run([&](Rank& self) {
                enqueue_collective(self, probe_.kind, probe_.bytes, probe_.ranks);
                self.wait();                                   // all ranks are here now
                record(*self.transfer_begin, *self.transfer);  // passes at once: the host's launch is inside
                enqueue_collective(self, probe_.kind, probe_.bytes, probe_.ranks);
                record(*self.transfer_end, *self.transfer);
                self.wait();
                slowest.add(seconds_between(*self.transfer_begin, *self.transfer_end));
            });
            return slowest.get();
        }
        mesh_->run([&](Rank& self) {
            self.transfer_hold->close(self.transfer->get());
            // One before the clock starts: processes let their streams go at different times.
            enqueue_collective(self, probe_.kind, probe_.bytes, probe_.ranks);
            record(*self.transfer_begin, *self.transfer);
            for (int i = 0; i < runs_; ++i) enqueue_collective(self, probe_.kind, probe_.bytes, probe_.ranks);
            record(*self.transfer_end, *self.transfer);
        });
        mesh_->run([&](Rank& self) {
            self.transfer_hold->open();
            self.wait();
            slowest.add(seconds_between(*self.transfer_begin, *self.transfer_end));
        });
        return slowest.get() / runs_;
    }

    Check verify() override {
        mesh_->run([&](Rank& self) {
            const CollectiveBuffers buffers = buffers_of(probe_.kind, probe_.bytes, probe_.ranks);
            check_cuda(cudaMemset(self.receive.as(), 0xff, static_cast<std::size_t>(buffers.receive)), "cudaMemset");
            enqueue_collective(self, probe_.kind, probe_.bytes, probe_.ranks);
            self.wait();
        });
        std::atomic<std::int64_t> wrong{0};
        mesh_->run([&](Rank& self) {
            const std::int64_t elements = buffers_of(probe_.kind, probe_.bytes, probe_.ranks).receive / 4;
            // The two ends of what each peer sent.
            const std::int64_t pieces = probe_.kind == CollectiveKind::reduce_scatter ? 1 : probe_.ranks;
            for (std::int64_t piece = 0; piece < pieces; ++piece) {
                const std::int64_t first = piece * (elements / pieces), last = first + elements / pieces - 1;
                for (const std::int64_t at : {first, last}) {
                    const double found = download(self.receive.as<float>() + at, 1).front();
                    wrong += found == expected(self.index, at, elements) ? 0 : 1;
                }
            }
        });
        return {static_cast<double>(wrong.load()), 0, true};
    }

 private:
    static double number(int rank, std::int64_t place) { return static_cast<double>((rank + 1) * 1000 + place % 997); }

    void fill_whole(std::int64_t elements) {
        mesh_->run([&](Rank& self) {
            fill_places(self.transfer->get(), self.send.as<float>(), elements, (self.index + 1) * 1000);
            self.wait();
        });
    }

    double expected(int rank, std::int64_t at, std::int64_t elements) const {
        const std::int64_t part = elements / probe_.ranks;
        switch (probe_.kind) {
            case CollectiveKind::all_to_all:  // piece p came from rank p, where it lay at this rank's place
                return number(static_cast<int>(at / part), rank * part + at % part);
            case CollectiveKind::all_gather:
                return number(static_cast<int>(at / part), at % part);
            case CollectiveKind::reduce_scatter: {
                double sum = 0;
                for (int peer = 0; peer < probe_.ranks; ++peer) sum += number(peer, rank * elements + at);
                return sum;
            }
            default:
                return number((rank + probe_.ranks - 1) % probe_.ranks, at);
        }
    }

    std::shared_ptr<NcclMesh> mesh_;
    CollectiveProbe probe_;
    int runs_ = 1;
};

std::int64_t used_bytes() {
    std::size_t free = 0, total = 0;
    check_cuda(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
    check_cuda(cudaMemGetInfo(&free, &total), "cudaMemGetInfo");
    return static_cast<std::int64_t>(total - free);
}

/// Of the first GPU here. The communicators of a job, made one after the other as trainers make them: of all ranks for
/// gathers and scatters, of the Ulysses group, and of the ring.
class CollectiveMemory : public PreparedProbe {
 public:
    CollectiveMemory(const MeshPlace& place, std::string ids) : place_(place), ids_(std::move(ids)) {}

    double run() override {
        check_cuda(cudaSetDevice(place_.first_gpu), "cudaSetDevice");
        const std::int64_t context = used_bytes();
        last_ = context;
        const auto begin = std::chrono::steady_clock::now();
        NcclMesh mesh(place_, id(0));
        const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
        Json all{{"use", "all ranks"}, {"initialisation", grown()}};
        mesh.reserve(bytes, bytes);
        last_ = used_bytes();
        first_use(mesh, all, CollectiveKind::all_gather);
        first_use(mesh, all, CollectiveKind::reduce_scatter);
        mesh.add_communicator(id(1));
        Json ulysses{{"use", "ulysses"}, {"initialisation", grown()}};
        first_use(mesh, ulysses, CollectiveKind::all_to_all);
        mesh.add_communicator(id(2));
        Json ring{{"use", "ring"}, {"initialisation", grown()}};
        first_use(mesh, ring, CollectiveKind::send_recv);
        notes_ = {{"context_and_loaded_kernels", context}, {"communicators", Json::array({all, ulysses, ring})}};
        return seconds;
    }
    Json notes() override { return {{"device_bytes", notes_}}; }

 private:
    static constexpr std::int64_t bytes = 64 * mebi;

    std::string id(std::size_t which) const { return ids_.substr(which * NCCL_UNIQUE_ID_BYTES, NCCL_UNIQUE_ID_BYTES); }
    std::int64_t grown() {
        const std::int64_t before = last_;
        last_ = used_bytes();
        return last_ - before;
    }
    void first_use(NcclMesh& mesh, Json& of, CollectiveKind kind) {
        mesh.run([&](Rank& self) {
            enqueue_collective(self, kind, bytes, place_.ranks);
            self.wait();
        });
        of[fmt::format("first_{}", collective_name(kind))] = grown();
    }

    MeshPlace place_;
    std::string ids_;
    std::int64_t last_ = 0;
    Json notes_;
};

class Overlapped : public PreparedProbe {
 public:
    Overlapped(std::shared_ptr<NcclMesh> mesh, const OverlapProbe& probe) : mesh_(std::move(mesh)), probe_(probe) {
        const CollectiveBuffers buffers = buffers_of(probe.kind, probe.bytes, probe.ranks);
        mesh_->reserve(buffers.send, buffers.receive);
        work_.resize(static_cast<std::size_t>(mesh_->here()));
        mesh_->run([&](Rank& self) {
            fill_normal(self.transfer->get(), self.send.as<float>(), buffers.send / 4, 5);
            work_of(self) = make_attention_work(self.compute->get(), probe_.shape);
            // Kernels are loaded at their first launch, which would wait for a held stream.
            work_of(self)->execute();
            enqueue_collective(self, probe.kind, probe.bytes, probe.ranks);
            self.wait();
        });
    }
    ~Overlapped() override {
        // Memory of a GPU is given back by the thread that has it current.
        mesh_->run([&](Rank& self) { work_of(self).reset(); });
    }
    Overlapped(const Overlapped&) = delete;
    Overlapped& operator=(const Overlapped&) = delete;

    Check verify() override { return work_.empty() ? Check{} : work_.front()->verify(); }

    double run() override {
        attention_.push_back(time(true, false));
        collective_.push_back(time(false, true));
        return time(true, true);
    }

    Json notes() override {
        return {{"attention_alone_seconds", summarise(attention_).median},
                {"collective_alone_seconds", summarise(collective_).median},
                {"attention_beside_seconds", summarise(attention_beside_).median},
                {"collective_beside_seconds", summarise(collective_beside_).median}};
    }

 private:
    std::unique_ptr<AttentionWork>& work_of(const Rank& rank) { return work_[static_cast<std::size_t>(rank.thread)]; }

    /// From the begin of the first to the end of the last. Both are enqueued while their streams are held; the second
    /// is let go 50 us after the first.
    double time(bool attention, bool collective) {
        mesh_->run([&](Rank& self) {
            if (attention) {
                self.compute_hold->close(self.compute->get());
                record(*self.compute_begin, *self.compute);
                work_of(self)->execute();
                record(*self.compute_end, *self.compute);
            }
            if (collective) {
                self.transfer_hold->close(self.transfer->get());
                record(*self.transfer_begin, *self.transfer);
                enqueue_collective(self, probe_.kind, probe_.bytes, probe_.ranks);
                record(*self.transfer_end, *self.transfer);
            }
        });
        Slowest all, of_attention, of_collective;
        mesh_->run([&](Rank& self) {
            StreamHold& first = probe_.collective_first ? *self.transfer_hold : *self.compute_hold;
            StreamHold& second = probe_.collective_first ? *self.compute_hold : *self.transfer_hold;
            first.open();
            if (attention && collective) std::this_thread::sleep_for(std::chrono::microseconds(50));
            second.open();
            self.wait();
            if (first.timed_out() || second.timed_out()) {
                throw Error("the host took more than 2 s to enqueue the work", "", "is the machine overloaded?",
                            ExitCode::failure);
            }
            if (attention) of_attention.add(seconds_between(*self.compute_begin, *self.compute_end));
            if (collective) of_collective.add(seconds_between(*self.transfer_begin, *self.transfer_end));
            if (attention && collective) {
                const EventOwner& begin = probe_.collective_first ? *self.transfer_begin : *self.compute_begin;
                all.add(
                    std::max(seconds_between(begin, *self.compute_end), seconds_between(begin, *self.transfer_end)));
            }
        });
        if (!collective) return of_attention.get();
        if (!attention) return of_collective.get();
        attention_beside_.push_back(of_attention.get());
        collective_beside_.push_back(of_collective.get());
        return all.get();
    }

    std::shared_ptr<NcclMesh> mesh_;
    OverlapProbe probe_;
    std::vector<std::unique_ptr<AttentionWork>> work_;
    std::vector<double> attention_, collective_, attention_beside_, collective_beside_;
};

}  // namespace

std::unique_ptr<PreparedProbe> prepare_collective(std::shared_ptr<NcclMesh> mesh, const CollectiveProbe& probe) {
    return std::make_unique<CollectiveMeasurement>(std::move(mesh), probe);
}
std::unique_ptr<PreparedProbe> prepare_collective_memory(const MeshPlace& place, const std::string& ids) {
    return std::make_unique<CollectiveMemory>(place, ids);
}
std::unique_ptr<PreparedProbe> prepare_overlap(std::shared_ptr<NcclMesh> mesh, const OverlapProbe& probe) {
    return std::make_unique<Overlapped>(std::move(mesh), probe);
}

}  // namespace headroom
