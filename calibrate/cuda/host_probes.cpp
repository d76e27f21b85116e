// SPDX-License-Identifier: Apache-2.0
#include "calibrate/cuda/host_probes.hpp"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <optional>
#include <random>

#include "calibrate/cuda/errors.hpp"
#include "calibrate/cuda/gpu_thread.hpp"
#include "calibrate/cuda/memory.hpp"
#include "calibrate/cuda/timer.hpp"
#include "calibrate/team.hpp"

namespace headroom {
namespace {

double seconds_since(std::chrono::steady_clock::time_point begin) {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

/// Thread i drives GPU i, counted round.
std::function<void(int)> on_gpus(int gpus) {
    return [gpus](int thread) { enter_gpu(thread % gpus); };
}

/// One thread's end of a copy; made by that thread, whose GPU and memory node it then has.
struct Lane {
    explicit Lane(std::int64_t bytes) : device(bytes) {}
    StreamOwner stream;
    DeviceBuffer device;
    std::optional<PinnedBuffer> pinned;
    MappedPages pages;
    void* host = nullptr;
};

class HostCopy : public PreparedProbe {
 public:
    explicit HostCopy(const HostCopyProbe& probe)
        : probe_(probe), lanes_(static_cast<std::size_t>(probe.threads)), team_(probe.threads, on_gpus(probe.gpus)) {
        team_.run([&](int i) {
            Lane& lane = lanes_[static_cast<std::size_t>(i)].emplace(probe_.bytes);
            if (probe_.memory == HostPages::pinned) {
                lane.pinned.emplace(probe_.bytes);
                lane.host = lane.pinned->as();
            } else {
                lane.pages = MappedPages(probe_.bytes);
                lane.host = lane.pages.get();
            }
            std::memset(lane.host, i + 1, bytes());
            check_cuda(cudaMemcpy(lane.device.as(), lane.host, bytes(), cudaMemcpyHostToDevice), "cudaMemcpy");
        });
        // Short copies are repeated within one timing; into fresh memory each needs its own mapping.
        if (probe.memory == HostPages::pinned || probe.memory == HostPages::existing) {
            runs_ = static_cast<int>(std::max<std::int64_t>(1, 256 * mebi / probe.bytes));
        }
    }

    double run() override {
        switch (probe_.memory) {
            case HostPages::pinned:
                if (team_.size() == 1) {
                    return timer_.time(lane_of(0).stream.get(), runs_, [&](cudaStream_t) { enqueue(lane_of(0)); });
                }
                break;
            case HostPages::fresh:
                return run_fresh();
            case HostPages::written:
                team_.run([&](int i) { std::memset(lane_of(i).host, ++fill_ & 0x7f, bytes()); });
                break;
            case HostPages::existing:
                break;
        }
        return team_.run([&](int i) {
            for (int k = 0; k < runs_; ++k) enqueue(lane_of(i));
            lane_of(i).stream.synchronize();
        }) / runs_;
    }

    /// In the timed direction every lane carries random bytes at both ends of its memory.
    Check verify() override {
        std::atomic<std::int64_t> wrong{0};
        team_.run([&](int i) {
            Lane& lane = lane_of(i);
            const std::size_t size = std::min<std::size_t>(bytes(), std::size_t{4} << 20);
            const std::size_t ends[]{0, bytes() - size};
            std::vector<unsigned char> sent(size), received(size);
            std::mt19937_64 random(7 + static_cast<std::uint64_t>(i));
            for (std::size_t at = 0; at + 8 <= size; at += 8) {
                const std::uint64_t word = random();
                std::memcpy(&sent[at], &word, 8);
            }
            const auto host = [&](std::size_t at) { return static_cast<unsigned char*>(lane.host) + at; };
            const auto device = [&](std::size_t at) { return lane.device.as<unsigned char>() + at; };
            for (const std::size_t at : ends) {
                if (probe_.to_host) {
                    check_cuda(cudaMemcpy(device(at), sent.data(), size, cudaMemcpyHostToDevice), "cudaMemcpy");
                } else {
                    std::memcpy(host(at), sent.data(), size);
                }
            }
            enqueue(lane);
            lane.stream.synchronize();
            for (const std::size_t at : ends) {
                if (probe_.to_host) {
                    std::memcpy(received.data(), host(at), size);
                } else {
                    check_cuda(cudaMemcpy(received.data(), device(at), size, cudaMemcpyDeviceToHost), "cudaMemcpy");
                }
                wrong += received == sent ? 0 : 1;
            }
        });
        return {static_cast<double>(wrong.load()), 0, true};
    }

    Json notes() override {
        if (unmap_.empty()) return Json::object();
        return {{"unmap_seconds", summarise(unmap_).median}};
    }

 private:
    std::size_t bytes() const { return static_cast<std::size_t>(probe_.bytes); }
    Lane& lane_of(int i) { return *lanes_[static_cast<std::size_t>(i)]; }

    void enqueue(Lane& lane) const {
        check_cuda(
            probe_.to_host
                ? cudaMemcpyAsync(lane.host, lane.device.as(), bytes(), cudaMemcpyDeviceToHost, lane.stream.get())
                : cudaMemcpyAsync(lane.device.as(), lane.host, bytes(), cudaMemcpyHostToDevice, lane.stream.get()),
            "cudaMemcpyAsync");
    }

    double run_fresh() {
        team_.run([&](int i) { lane_of(i).pages = MappedPages(); });
        const double seconds = team_.run([&](int i) {
            Lane& lane = lane_of(i);
            lane.pages = MappedPages(probe_.bytes);
            lane.host = lane.pages.get();
            enqueue(lane);
            lane.stream.synchronize();
        });
        unmap_.push_back(team_.run([&](int i) { lane_of(i).pages = MappedPages(); }));
        return seconds;
    }

    HostCopyProbe probe_;
    std::vector<std::optional<Lane>> lanes_;
    Team team_;
    BatchTimer timer_;
    std::atomic<int> fill_{0};
    int runs_ = 1;
    std::vector<double> unmap_;  ///< seconds to give the pages back
};

class ZeroFill : public PreparedProbe {
 public:
    explicit ZeroFill(const ZeroFillProbe& probe) : probe_(probe), team_(probe.threads, on_gpus(1)) {
        for (int i = 0; i < probe.threads; ++i) buffers_.emplace_back(probe.bytes);
        team_.run([&](int i) { fill(i, 1); });
    }
    double run() override {
        return team_.run([&](int i) { fill(i, 0); });
    }
    Check verify() override {
        run();
        double wrong = 0;
        for (const PinnedBuffer& buffer : buffers_) {
            const auto* data = buffer.as<unsigned char>();
            for (std::int64_t i = 0; i < probe_.bytes; i += 4096) wrong += data[i] == 0 ? 0.0 : 1.0;
        }
        return {wrong, 0, true};
    }

 private:
    void fill(int i, int value) {
        std::memset(buffers_[static_cast<std::size_t>(i)].as(), value, static_cast<std::size_t>(probe_.bytes));
    }
    ZeroFillProbe probe_;
    std::vector<PinnedBuffer> buffers_;
    Team team_;
};

class HostGapMeasurement : public PreparedProbe {
 public:
    explicit HostGapMeasurement(const HostGapProbe& probe) : probe_(probe), stamps_(2 * sizeof(Stamp)) {}

    double run() override {
        switch (probe_.gap) {
            case HostGap::launch:
                return launch();
            case HostGap::small_kernel:
                return timer_.time(stream_.get(), batch, [](cudaStream_t stream) { launch_empty(stream, 264); });
            case HostGap::after_wait:
                return after_wait();
            case HostGap::pin:
                return pin();
            case HostGap::unmap:
                return unmap();
        }
        return 0;
    }

 private:
    static constexpr int batch = 500;  // the launch queue holds about 1000

    double launch() {
        hold_.close(stream_.get());
        const auto begin = std::chrono::steady_clock::now();
        for (int i = 0; i < batch; ++i) launch_empty(stream_.get(), 1);
        const double seconds = seconds_since(begin);
        hold_.open();
        stream_.synchronize();
        return seconds / batch;
    }

    /// The first kernel is long enough for the host to be waiting when it ends.
    double after_wait() {
        auto* stamps = stamps_.as<Stamp>();
        launch_stamp(stream_.get(), stamps, 300'000);
        stream_.synchronize();
        launch_stamp(stream_.get(), stamps + 1, 0);
        stream_.synchronize();
        Stamp host[2];
        check_cuda(cudaMemcpy(host, stamps, sizeof host, cudaMemcpyDeviceToHost), "cudaMemcpy");
        return static_cast<double>(host[1].begin - host[0].end) * 1e-9;
    }

    double pin() const {
        const auto begin = std::chrono::steady_clock::now();
        const PinnedBuffer buffer(probe_.bytes);
        return seconds_since(begin);
    }

    double unmap() const {
        MappedPages pages(probe_.bytes);
        std::memset(pages.get(), 1, static_cast<std::size_t>(probe_.bytes));
        const auto begin = std::chrono::steady_clock::now();
        pages = MappedPages();
        return seconds_since(begin);
    }

    HostGapProbe probe_;
    StreamOwner stream_;
    DeviceBuffer stamps_;
    StreamHold hold_;
    BatchTimer timer_;
};

}  // namespace

std::unique_ptr<PreparedProbe> prepare_host_copy(const HostCopyProbe& probe) {
    int visible = 0;
    check_cuda(cudaGetDeviceCount(&visible), "cudaGetDeviceCount");
    if (probe.gpus > visible) throw Waived("this process does not see all GPUs of the node");
    return std::make_unique<HostCopy>(probe);
}
std::unique_ptr<PreparedProbe> prepare_zero_fill(const ZeroFillProbe& probe) {
    return std::make_unique<ZeroFill>(probe);
}
std::unique_ptr<PreparedProbe> prepare_host_gap(const HostGapProbe& probe) {
    return std::make_unique<HostGapMeasurement>(probe);
}

}  // namespace headroom
