// SPDX-License-Identifier: Apache-2.0
#include "calibrate/cuda/run_fleet.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <mutex>

#include "calibrate/cuda/device.hpp"
#include "calibrate/cuda/errors.hpp"
#include "calibrate/cuda/nvml.hpp"
#include "calibrate/cuda/run_device.hpp"
#include "calibrate/host_facts.hpp"
#include "calibrate/rank_groups.hpp"
#include "calibrate/run/together.hpp"

namespace headroom {
namespace {

/// A communicator serves every case whose group has the same members.
struct GroupKey {
    CommGroup group;
    int ranks, stride;
    auto operator<=>(const GroupKey&) const = default;
};

GroupKey key_of(const Recipe& recipe, CommGroup group) {
    return {group, static_cast<int>(group_members(recipe, group, 0).size()),
            group == CommGroup::ring ? recipe.ulysses : 1};
}

class CudaFleet : public RunFleet {
 public:
    explicit CudaFleet(int gpus)
        : gpus_(gpus), team_(gpus, [](int gpu) { check_cuda(cudaSetDevice(gpu), "cudaSetDevice"); }) {
        int visible = 0;
        check_cuda(cudaGetDeviceCount(&visible), "cudaGetDeviceCount");
        if (visible < gpus) {
            throw Error(fmt::format("{} GPUs are asked for, {} are visible", gpus, visible), "--gpus",
                        "check CUDA_VISIBLE_DEVICES, or ask for fewer", ExitCode::failure);
        }
        first_ = open_cuda_device({});
        ranks_.resize(static_cast<std::size_t>(gpus));
        team_.run([&](int i) { rank(i).device = std::make_unique<CudaRunDevice>(i, gpus, trouble_, aborted_); });
    }
    ~CudaFleet() override {
        abort_all();
        team_.run([&](int i) {
            rank(i).runner.reset();
            rank(i).device.reset();
        });
    }
    CudaFleet(const CudaFleet&) = delete;
    CudaFleet& operator=(const CudaFleet&) = delete;

    Json provenance() override { return first_->provenance(); }
    int gpus() override { return gpus_; }
    bool usable() override { return cudaDeviceSynchronize() == cudaSuccess; }

    CaseMeasurement run(const CasePlan& plan, const RunProtocol& protocol) override {
        trouble_.reset(protocol.interrupted);
        aborted_ = false;
        try {
            CaseMeasurement measured = run_case(plan, protocol);
            end_case();
            return measured;
        } catch (...) {
            abort_all();
            end_case();
            if (trouble_.any()) throw trouble_.error();
            throw;
        }
    }

 private:
    struct Rank {
        std::unique_ptr<CudaRunDevice> device;
        std::unique_ptr<ScheduleRunner> runner;
        std::map<GroupKey, ncclComm_t> comms;
        double seconds = 0, loss = 0;  ///< of the last step; the loss summed over rows
    };
    Rank& rank(int index) { return ranks_[static_cast<std::size_t>(index)]; }

    void together(const std::function<void(int)>& action) {
        act_together(team_, trouble_, action, [this] { abort_all(); });
    }

    void abort_all() {
        const std::lock_guard lock(abort_);
        for (Rank& one : ranks_) {
            for (const auto& [key, comm] : one.comms) ncclCommAbort(comm);
            one.comms.clear();
        }
        aborted_ = true;
    }

    void end_case() {
        team_.run([&](int i) {
            rank(i).runner.reset();
            rank(i).device->end_case();
        });
    }

    /// Communicators of the groups in use, and no others: each holds hundreds of MiB.
    void connect(const CasePlan& plan) {
        const Recipe& recipe = plan.one.recipe;
        const std::vector<CommGroup> groups = groups_in_use(plan.ranks.front().schedule, recipe);
        std::map<std::pair<GroupKey, int>, ncclUniqueId> ids;  // by the group's first rank
        std::vector<GroupKey> keys;
        for (const CommGroup group : groups) {
            keys.push_back(key_of(recipe, group));
            if (rank(0).comms.contains(keys.back())) continue;
            for (int i = 0; i < gpus_; ++i) {
                const int leader = group_members(recipe, group, i).front();
                if (leader == i) check_nccl(ncclGetUniqueId(&ids[{keys.back(), i}]), "ncclGetUniqueId", i);
            }
        }
        together([&](int i) {
            auto& comms = rank(i).comms;
            std::erase_if(comms, [&](const auto& one) {
                if (std::find(keys.begin(), keys.end(), one.first) != keys.end()) return false;
                ncclCommDestroy(one.second);
                return true;
            });
            for (std::size_t g = 0; g < groups.size(); ++g) {
                if (comms.contains(keys[g])) continue;
                const std::vector<int> members = group_members(recipe, groups[g], i);
                const auto place = std::find(members.begin(), members.end(), i) - members.begin();
                ncclComm_t comm = nullptr;
                check_nccl(ncclCommInitRank(&comm, static_cast<int>(members.size()), ids.at({keys[g], members.front()}),
                                            static_cast<int>(place)),
                           fmt::format("ncclCommInitRank of {} GPUs", members.size()), i);
                comms[keys[g]] = comm;
            }
        });
    }

    CommEnds ends_of(const Recipe& recipe, int index) {
        CommEnds ends{};
        for (const CommGroup group : {CommGroup::ulysses, CommGroup::ring, CommGroup::context, CommGroup::sharding}) {
            const std::vector<int> members = group_members(recipe, group, index);
            const auto found = rank(index).comms.find(key_of(recipe, group));
            if (members.size() < 2 || found == rank(index).comms.end()) continue;
            const auto place = std::find(members.begin(), members.end(), index) - members.begin();
            ends[static_cast<std::size_t>(group)] = {found->second, static_cast<int>(place),
                                                     static_cast<int>(members.size())};
        }
        return ends;
    }

    std::vector<GpuState> states() {
        std::vector<GpuState> states;
        for (int i = 0; i < gpus_; ++i) {
            char bus[32] = {};
            check_cuda(cudaDeviceGetPCIBusId(bus, sizeof bus, i), "cudaDeviceGetPCIBusId");
            states.push_back(nvml_.state(bus));
        }
        return states;
    }

    /// One training step on all ranks; seconds until the last has ended.
    double step(const CasePlan& plan, CaseMeasurement& measured) {
        together([&](int i) {
            const double begin = monotonic_seconds();
            rank(i).runner->step();
            rank(i).device->finish();
            rank(i).seconds = monotonic_seconds() - begin;
            rank(i).loss = rank(i).device->take_loss();
        });
        if (!plan.one.blocks_only) measured.losses.push_back(mean_loss(plan));
        return std::max_element(ranks_.begin(), ranks_.end(),
                                [](const Rank& a, const Rank& b) { return a.seconds < b.seconds; })
            ->seconds;
    }

    double mean_loss(const CasePlan& plan) const {
        double sum = 0;
        std::int64_t tokens = 0;
        for (const Rank& one : ranks_) sum += one.loss;
        for (const RankPlan& one : plan.ranks) tokens += one.work.tokens;
        if (std::isfinite(sum)) return sum / static_cast<double>(tokens);
        throw Error("the loss is no number", "", "this is a bug: please report it with the command", ExitCode::failure);
    }

    CaseMeasurement run_case(const CasePlan& plan, const RunProtocol& protocol) {
        CaseMeasurement measured;
        const double begin = monotonic_seconds();
        // Far beyond any step, yet bounded; the first step also makes page-locked memory.
        const double patience = 60 + 5 * plan.slowest().step.seconds.value;
        connect(plan);
        together([&](int i) {
            Rank& one = rank(i);
            const RankPlan& mine = plan.ranks[static_cast<std::size_t>(i)];
            one.device->begin_case(mine, ends_of(plan.one.recipe, i), patience);
            one.runner = std::make_unique<ScheduleRunner>(mine.schedule, *one.device);
            one.runner->set_up();
            one.device->begin_steps(mine, one.runner->tensors());
            one.device->finish();
        });
        measured.preparation_seconds = monotonic_seconds() - begin;
        while (measured.warm_steps == 0 || measured.warm_seconds < protocol.warm_seconds) {
            measured.warm_seconds += step(plan, measured);
            ++measured.warm_steps;
        }
        measured.before = states();
        measured.ranks.resize(static_cast<std::size_t>(gpus_));
        together([&](int i) { rank(i).device->reset_peak(); });
        for (int i = 0; i < protocol.steps; ++i) {
            measured.seconds.push_back(step(plan, measured));
            for (int r = 0; r < gpus_; ++r)
                measured.ranks[static_cast<std::size_t>(r)].seconds.push_back(rank(r).seconds);
        }
        measured.after = states();
        together([&](int i) { rank(i).device->measure_ops(true); });
        step(plan, measured);
        together([&](int i) {
            RankMeasurement& mine = measured.ranks[static_cast<std::size_t>(i)];
            const RankPlan& planned = plan.ranks[static_cast<std::size_t>(i)];
            rank(i).device->report(mine, static_cast<std::uint32_t>(planned.schedule.segments.size()));
            mine.requested = rank(i).runner->memory();
            mine.instrumented_seconds = rank(i).seconds;
        });
        return measured;
    }

    int gpus_;
    Team team_;
    Trouble trouble_;
    std::atomic<bool> aborted_{false};
    std::mutex abort_;
    std::unique_ptr<Device> first_;  ///< for the provenance
    Nvml nvml_;
    std::vector<Rank> ranks_;
};

}  // namespace

std::unique_ptr<RunFleet> open_cuda_fleet(int gpus) { return std::make_unique<CudaFleet>(gpus); }

}  // namespace headroom
