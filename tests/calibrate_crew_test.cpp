// SPDX-License-Identifier: Apache-2.0
// Eight processes of a job, as threads on loopback, that probe collectives together without a GPU: the fake
// communicator is a barrier that all members of a group must reach.
#include <doctest/doctest.h>
#include <unistd.h>

#include <barrier>
#include <map>
#include <mutex>
#include <set>
#include <thread>

#include "calibrate/crew_device.hpp"
#include "calibrate/host_facts.hpp"
#include "calibrate/probe_file.hpp"
#include "fake_device.hpp"
#include "run_headroom.hpp"

using namespace headroom;

namespace {

/// Where the fake ranks of one job meet.
struct Meeting {
    std::mutex mutex;
    std::map<std::string, std::set<int>> joined;  ///< first ranks, by invitation
    std::atomic<int> runs{0};
};

class FakeRank : public FakeDevice {
 public:
    FakeRank(Meeting& meeting, int gpus) : meeting_(meeting), gpus_(gpus) {}
    std::string failing;  ///< a probe whose run fails here
    double slowness = 0;  ///< seconds a run takes longer here
    int forgotten = 0;

    PlanMachine machine() override {
        PlanMachine machine;
        machine.gpus = gpus_;
        return machine;
    }
    std::string invitation(const Probe& probe) override {
        return "id of " + probe.name + std::string(1, '\0') + std::to_string(++made_);
    }
    std::unique_ptr<PreparedProbe> join(const Probe& probe, const std::string& invitation, int first_rank) override {
        const std::lock_guard lock(meeting_.mutex);
        meeting_.joined[invitation].insert(first_rank);
        return std::make_unique<Share>(*this, probe.name);
    }
    void forget_shared() override { ++forgotten; }

 private:
    class Share : public PreparedProbe {
     public:
        Share(FakeRank& rank, std::string name) : rank_(rank), name_(std::move(name)) {}
        double run() override {
            ++rank_.meeting_.runs;
            if (name_ == rank_.failing) throw Error("a cable is loose", "rank", "push it in", ExitCode::failure);
            rank_.clock += 0.01;
            return 0.01 + rank_.slowness;
        }
        Check verify() override { return rank_.check; }

     private:
        FakeRank& rank_;
        std::string name_;
    };
    Meeting& meeting_;
    int gpus_, made_ = 0;
};

int free_port(int offset) { return 24000 + static_cast<int>(::getpid() % 8000) * 4 + offset; }

JobPlace place_of(int process, int processes, int port) {
    return {process, processes, process, processes, "test", "127.0.0.1", port};
}

/// Runs `lead` in this thread as process 0, the others as members on two nodes of four.
template <class Lead>
std::vector<std::string> job(std::vector<std::unique_ptr<FakeRank>>& ranks, int port, Lead&& lead) {
    const int size = static_cast<int>(ranks.size());
    std::vector<std::string> failures(ranks.size());
    std::vector<std::thread> others;
    const auto node = [](int process) { return process < 4 ? "node a" : "node b"; };
    for (int process = 1; process < size; ++process) {
        others.emplace_back([&, process] {
            try {
                CrewMember member(place_of(process, size, port), 20);
                serve_crew(*ranks[static_cast<std::size_t>(process)], member, place_of(process, size, port),
                           node(process));
            } catch (const std::exception& error) {
                failures[static_cast<std::size_t>(process)] = error.what();
            }
        });
    }
    {
        const JobPlace place = place_of(0, size, port);
        const auto device = lead_crew(std::move(ranks[0]), Crew(place, 20), place, node(0));
        lead(*device);
    }
    for (std::thread& other : others) other.join();
    return failures;
}

std::vector<std::unique_ptr<FakeRank>> ranks_of_a_job(Meeting& meeting, int size, int gpus = 1) {
    std::vector<std::unique_ptr<FakeRank>> ranks;
    for (int i = 0; i < size; ++i) ranks.push_back(std::make_unique<FakeRank>(meeting, gpus));
    return ranks;
}

SessionOptions real_time() {
    return {monotonic_seconds, [] { return std::string("today"); }, {}, nullptr};
}

const Probe& named(const std::vector<Probe>& probes, const std::string& name) {
    for (const Probe& probe : probes) {
        if (probe.name == name) return probe;
    }
    FAIL("no probe " << name);
    return probes.front();
}

constexpr const char* gather = "collective/all_gather/1MiB/8in2nodes/full";

}  // namespace

TEST_CASE("eight processes run a collective together: one invitation, all ranks, the slowest one's time") {
    Meeting meeting;
    auto ranks = ranks_of_a_job(meeting, 8);
    ranks[5]->slowness = 0.02;
    const auto failures = job(ranks, free_port(0), [&](Device& device) {
        CHECK(device.machine().gpus == 8);
        CHECK(device.machine().node_gpus() == 4);
        CHECK(device.provenance()["job"]["processes"].size() == 8);
        const std::vector<Probe> probes = all_probes(device.machine());
        const Json record = run_probe(device, named(probes, gather), real_time());
        CHECK(record["status"] == "ok");
        CHECK(record["seconds"]["median"].get<double>() == doctest::Approx(0.03));
        CHECK(record["settings"]["nodes"] == 2);
        // What is no collective runs on the first process alone.
        const int before = meeting.runs;
        CHECK(run_probe(device, named(probes, "host/gap/launch"), real_time())["status"] == "ok");
        CHECK(meeting.runs == before);
    });
    for (const std::string& failure : failures) CHECK(failure.empty());
    REQUIRE(meeting.joined.size() == 1);
    CHECK(meeting.joined.begin()->second == std::set<int>{0, 1, 2, 3, 4, 5, 6, 7});
    CHECK(meeting.runs % 8 == 0);  // in step
}

TEST_CASE("a process holds as many ranks as it has GPUs") {
    Meeting meeting;
    auto ranks = ranks_of_a_job(meeting, 8, 4);  // four processes on each of two nodes here
    const auto failures = job(ranks, free_port(3), [&](Device& device) {
        CHECK(device.machine().gpus == 32);
        CHECK(device.machine().node_gpus() == 16);
        const std::vector<Probe> probes = all_probes(device.machine());
        const Probe& whole = named(probes, "collective/send_recv/1MiB/32in2nodes/full");
        CHECK(run_probe(device, whole, real_time())["status"] == "ok");
        // A group that not all processes are in: they are asked all the same, and keep in step.
        CHECK(run_probe(device, named(probes, "collective/send_recv/1MiB/2/full"), real_time())["status"] == "ok");
    });
    for (const std::string& failure : failures) CHECK(failure.empty());
    REQUIRE(meeting.joined.size() == 2);
    for (const auto& [invitation, first_ranks] : meeting.joined) {
        CHECK(first_ranks == std::set<int>{0, 4, 8, 12, 16, 20, 24, 28});
    }
}

TEST_CASE("a failure or a wrong result of one process names it, and the next probe goes on") {
    Meeting meeting;
    auto ranks = ranks_of_a_job(meeting, 8);
    FakeRank& third = *ranks[3];
    FakeRank& sixth = *ranks[6];
    third.failing = gather;
    const auto failures = job(ranks, free_port(1), [&](Device& device) {
        const std::vector<Probe> probes = all_probes(device.machine());
        const Json failed = run_probe(device, named(probes, gather), real_time());
        CHECK(failed["status"] == "failed");
        CHECK(failed["reason"] == "process 3: a cable is loose");
        CHECK(failed["try"] == "push it in");
        CHECK(third.forgotten == 1);
        CHECK(sixth.forgotten == 1);
        CHECK(device.usable());
        sixth.check = {std::numeric_limits<double>::quiet_NaN(), 1e-2, true};
        const std::string other = "collective/all_gather/2MiB/8in2nodes/full";
        CHECK(contains(run_probe(device, named(probes, other), real_time())["reason"].get<std::string>(),
                       "the result is wrong"));
        sixth.check = {0, 1e-2, true};
        CHECK(run_probe(device, named(probes, other), real_time())["status"] == "ok");
    });
    for (const std::string& failure : failures) CHECK(failure.empty());
}

TEST_CASE("a process that dies ends the session with its number, and what is written stays") {
    Meeting meeting;
    const int port = free_port(2);
    auto leader = std::make_unique<FakeRank>(meeting, 1);
    leader->failing = "collective/all_gather/1MiB/2/full";  // as it would, waiting in vain: the cause is the other's
    std::thread dying([&] {
        CrewMember member(place_of(1, 2, port), 20);
        FakeRank rank(meeting, 1);
        // Answers what it is, joins, and is gone.
        for (int message = 0; message < 3; ++message) {
            const auto heard = member.next(20);
            if (heard && heard->at("do") == "describe")
                member.answer({{"gpus", 1}, {"node", "node a"}});
            else
                member.answer(Json::object());
        }
    });
    const JobPlace place = place_of(0, 2, port);
    const auto device = lead_crew(std::move(leader), Crew(place, 20), place, "node a");
    const TemporaryDirectory directory;
    ProbeWriter writer = ProbeWriter::create(directory.path("p"));
    writer.write(device->provenance());
    const std::vector<Probe> all = all_probes(device->machine());
    const std::vector<Probe> probes{named(all, "host/gap/launch"), named(all, "collective/all_gather/1MiB/2/full"),
                                    named(all, "host/gap/after_wait")};
    const SessionResult result = run_session(*device, probes, writer, real_time());
    dying.join();
    CHECK(result.ok == 1);
    CHECK(result.failed == 1);
    CHECK(result.device_lost);
    const ProbeFile file = read_probe_file(directory.path("p"));
    REQUIRE(file.records.size() == 2);
    CHECK(contains(file.records[1]["reason"].get<std::string>(), "process 1"));
}

TEST_CASE("a launcher's one process per GPU or per node is recognised") {
    CHECK_FALSE(one_gpu_each({0, 2, 0, 1, "Slurm", "a", 1}));
    CHECK(one_gpu_each({0, 2, 0, 2, "torchrun", "a", 1}));
    CHECK(one_gpu_each({3, 8, 3, 1, "Slurm", "a", 1}));  // the size was not said
    const std::map<std::string, std::string> slurm{{"SLURM_PROCID", "0"},  {"SLURM_NTASKS", "16"},
                                                   {"SLURM_LOCALID", "0"}, {"SLURM_STEP_TASKS_PER_NODE", "8(x2)"},
                                                   {"MASTER_ADDR", "n1"},  {"MASTER_PORT", "29500"}};
    const JobPlace place = find_place([&](const char* name) -> std::optional<std::string> {
        const auto found = slurm.find(name);
        return found == slurm.end() ? std::nullopt : std::optional(found->second);
    });
    CHECK(place.local_size == 8);
}
