// SPDX-License-Identifier: Apache-2.0
#include "calibrate/cuda/sustained_probe.hpp"

#include <algorithm>
#include <array>

#include "calibrate/cuda/attention_probe.hpp"
#include "calibrate/cuda/errors.hpp"
#include "calibrate/cuda/gpu_thread.hpp"
#include "calibrate/cuda/kernels.hpp"
#include "calibrate/cuda/memory.hpp"
#include "calibrate/cuda/product.hpp"
#include "calibrate/statistics.hpp"
#include "calibrate/team.hpp"

namespace headroom {
namespace {

enum Part : std::size_t { forward, backward, products, part_count };
constexpr std::array<const char*, part_count> part_names{"forward", "backward", "gemm"};
using PartSeconds = std::array<double, part_count>;  // of one run of each

/// One GPU's share.
class Mix {
 public:
    explicit Mix(const SustainedProbe& probe)
        : probe_(probe),
          forward_(make_attention_work(stream_.get(), probe.forward)),
          backward_(make_attention_work(stream_.get(), probe.backward)),
          x_(2 * probe.gemm.m * probe.gemm.k),
          w_(2 * probe.gemm.n * probe.gemm.k),
          y_(2 * probe.gemm.m * probe.gemm.n),
          product_{probe.gemm.m,      probe.gemm.n, probe.gemm.k, 1, {{}, probe.gemm.k}, {{}, probe.gemm.k, 0, true},
                   {{}, probe.gemm.n}} {
        fill_normal(stream_.get(), x_.as<bf16>(), probe.gemm.m * probe.gemm.k, 1);
        fill_normal(stream_.get(), w_.as<bf16>(), probe.gemm.n * probe.gemm.k, 2);
        library_.prepare(product_);
        stream_.synchronize();
    }

    PartSeconds turn() {
        mark(0);
        for (int i = 0; i < 2; ++i) forward_->execute();
        mark(1);
        backward_->execute();
        mark(2);
        for (int i = 0; i < probe_.products; ++i) {
            library_.run(stream_.get(), product_, x_.as(), w_.as(), y_.as());
        }
        mark(3);
        stream_.synchronize();
        return {between(0) / 2, between(1), between(2) / probe_.products};
    }

 private:
    void mark(std::size_t i) { check_cuda(cudaEventRecord(events_[i].get(), stream_.get()), "cudaEventRecord"); }
    double between(std::size_t i) const { return seconds_between(events_[i], events_[i + 1]); }

    SustainedProbe probe_;
    StreamOwner stream_;
    std::unique_ptr<AttentionWork> forward_, backward_;
    DeviceBuffer x_, w_, y_;
    Product product_;
    Products library_;
    std::array<EventOwner, 4> events_;
};

class Sustained : public PreparedProbe {
 public:
    explicit Sustained(const SustainedProbe& probe)
        : gpus_(static_cast<std::size_t>(probe.gpus)), team_(probe.gpus, enter_gpu) {
        team_.run([&](int i) { at(i).mix = std::make_unique<Mix>(probe); });
    }
    ~Sustained() override {
        team_.run([&](int i) { at(i).mix.reset(); });
    }
    Sustained(const Sustained&) = delete;
    Sustained& operator=(const Sustained&) = delete;

    double run() override {
        return team_.run([&](int i) { at(i).turns.push_back(at(i).mix->turn()); });
    }

    /// Of the later half of all turns, warm ones included: the slowest GPU, since ranks wait for it, and each alone.
    Json notes() override {
        Json slowest = Json::object(), each = Json::object();
        for (std::size_t part = 0; part < part_count; ++part) {
            std::vector<double> of_gpus;
            for (const Gpu& gpu : gpus_) of_gpus.push_back(later_half(gpu.turns, part));
            slowest[part_names[part]] = *std::max_element(of_gpus.begin(), of_gpus.end());
            each[part_names[part]] = of_gpus;
        }
        return {{"seconds_of_parts", slowest}, {"seconds_by_gpu", each}};
    }

 private:
    struct Gpu {
        std::unique_ptr<Mix> mix;
        std::vector<PartSeconds> turns;
    };
    Gpu& at(int i) { return gpus_[static_cast<std::size_t>(i)]; }

    static double later_half(const std::vector<PartSeconds>& turns, std::size_t part) {
        std::vector<double> seconds;
        for (std::size_t i = turns.size() / 2; i < turns.size(); ++i) seconds.push_back(turns[i][part]);
        return quantile(seconds, 0.5);
    }

    std::vector<Gpu> gpus_;
    Team team_;
};

}  // namespace

std::unique_ptr<PreparedProbe> prepare_sustained(const SustainedProbe& probe) {
    int visible = 0;
    check_cuda(cudaGetDeviceCount(&visible), "cudaGetDeviceCount");
    if (probe.gpus > visible) throw Waived("this process does not see all GPUs of the node");
    return std::make_unique<Sustained>(probe);
}

}  // namespace headroom
