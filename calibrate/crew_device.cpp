// SPDX-License-Identifier: Apache-2.0
#include "calibrate/crew_device.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <exception>
#include <limits>

namespace headroom {
namespace {

// The wait for peers inside NCCL is 60 s: whoever fails there says so before these are over.
constexpr double answer_patience = 90, preparation_patience = 150;
constexpr double leader_patience = 3600;  // it probes alone for minutes

std::string hex(const std::string& bytes) {
    std::string text;
    for (const char byte : bytes) text += fmt::format("{:02x}", static_cast<unsigned char>(byte));
    return text;
}
std::string from_hex(const std::string& text) {
    std::string bytes;
    for (std::size_t i = 0; i + 1 < text.size(); i += 2) {
        bytes += static_cast<char>(std::stoi(text.substr(i, 2), nullptr, 16));
    }
    return bytes;
}

/// The same step on every process at once; the leader's part meanwhile. Its own error comes first, unless a process is
/// gone: then whatever failed here only waited for it.
template <class Own>
std::vector<Json> together(Crew& crew, const Json& message, double patience, Own&& own) {
    crew.tell(message);
    std::exception_ptr failure;
    try {
        own();
    } catch (...) {
        failure = std::current_exception();
    }
    std::vector<Json> answers;
    try {
        answers = crew.answers(patience);
    } catch (...) {
        if (!failure || !crew.complete()) failure = std::current_exception();
    }
    if (failure) std::rethrow_exception(failure);
    return answers;
}

class SharedMeasurement : public PreparedProbe {
 public:
    SharedMeasurement(Device& own, Crew& crew, const Probe& probe) : own_(own), crew_(crew) {
        const std::string invitation = own.invitation(probe);
        step({{"do", "prepare"}, {"probe", probe.name}, {"invitation", hex(invitation)}}, preparation_patience,
             [&] { measurement_ = own.join(probe, invitation, 0); });
    }
    ~SharedMeasurement() override { release(false); }
    SharedMeasurement(const SharedMeasurement&) = delete;
    SharedMeasurement& operator=(const SharedMeasurement&) = delete;

    double run() override {
        double slowest = 0;
        for (const Json& one : step({{"do", "run"}}, answer_patience, [&] { slowest = measurement_->run(); })) {
            slowest = std::max(slowest, one.at("seconds").get<double>());
        }
        return slowest;
    }

    Check verify() override {
        Check check;
        const auto answers = step({{"do", "verify"}}, preparation_patience, [&] { check = measurement_->verify(); });
        for (const Json& one : answers) {
            // A number that is none becomes null in JSON.
            const bool passed = one.at("passed");
            if (check.passed() && !passed) {
                check = {one.at("relative_error").is_number() ? one.at("relative_error").get<double>()
                                                              : std::numeric_limits<double>::quiet_NaN(),
                         one.at("limit"), true};
            }
        }
        return check;
    }

    Json notes() override { return measurement_->notes(); }

 private:
    template <class Own>
    std::vector<Json> step(const Json& message, double patience, Own&& own) {
        try {
            return together(crew_, message, patience, own);
        } catch (...) {
            release(true);
            throw;
        }
    }

    /// After a failure the communicators count as broken: the next probe makes new ones.
    void release(bool failed) noexcept {
        if (released_) return;
        released_ = true;
        try {
            measurement_.reset();
            if (failed) own_.forget_shared();
            if (!crew_.complete()) return;
            crew_.tell({{"do", "release"}, {"failed", failed}});
            crew_.answers(answer_patience);
        } catch (...) {  // said by the step that fails next
        }
    }

    Device& own_;
    Crew& crew_;
    std::unique_ptr<PreparedProbe> measurement_;
    bool released_ = false;
};

class CrewDevice : public Device {
 public:
    CrewDevice(std::unique_ptr<Device> own, Crew crew, const JobPlace& place, const std::string& node)
        : own_(std::move(own)), crew_(std::move(crew)) {
        crew_.tell({{"do", "describe"}});
        const std::vector<Json> others = crew_.answers(answer_patience);
        machine_ = own_->machine();
        Json first_ranks = Json::array({0});
        int on_this_node = machine_.gpus;
        members_ = Json::array({{{"process", 0}, {"node", node}, {"gpus", machine_.gpus}}});
        for (std::size_t i = 0; i < others.size(); ++i) {
            const int gpus = others[i].at("gpus");
            first_ranks.push_back(machine_.gpus);
            machine_.gpus += gpus;
            if (others[i].at("node") == node) on_this_node += gpus;
            members_.push_back({{"process", i + 1}, {"node", others[i].at("node")}, {"gpus", gpus}});
        }
        machine_.gpus_per_node = on_this_node;
        launcher_ = place.launcher;
        crew_.tell({{"do", "plan"}, {"gpus", machine_.gpus}, {"per_node", on_this_node}, {"ranks", first_ranks}});
        crew_.answers(answer_patience);
    }
    ~CrewDevice() override {
        try {
            if (crew_.complete()) crew_.tell({{"do", "end"}});
        } catch (const std::exception&) {  // they notice the closed connection
        }
    }
    CrewDevice(const CrewDevice&) = delete;
    CrewDevice& operator=(const CrewDevice&) = delete;

    Json provenance() override {
        Json provenance = own_->provenance();
        provenance["job"] = {{"launcher", launcher_},
                             {"gpus", machine_.gpus},
                             {"gpus_per_node", machine_.gpus_per_node},
                             {"processes", members_}};
        return provenance;
    }
    PlanMachine machine() override { return machine_; }
    GpuState state() override { return own_->state(); }
    bool usable() override { return crew_.complete() && own_->usable(); }

    std::unique_ptr<PreparedProbe> prepare(const Probe& probe) override {
        if (!is_shared(probe.work)) return own_->prepare(probe);
        return std::make_unique<SharedMeasurement>(*own_, crew_, probe);
    }

 private:
    std::unique_ptr<Device> own_;
    Crew crew_;
    PlanMachine machine_;
    Json members_;
    std::string launcher_;
};

/// What a member holds between two messages.
struct Membership {
    Device& own;
    const std::string& node;
    int first_rank = 0;
    std::vector<Probe> probes;
    std::unique_ptr<PreparedProbe> measurement;

    Json prepare(const Json& message) {
        const std::string name = message.at("probe");
        const auto probe = std::find_if(probes.begin(), probes.end(), [&](const Probe& p) { return p.name == name; });
        if (probe == probes.end()) {
            throw Error("this process knows no such probe", name, "run the same program everywhere", ExitCode::failure);
        }
        measurement.reset();
        measurement = own.join(*probe, from_hex(message.at("invitation")), first_rank);
        return Json::object();
    }

    Json obey(const std::string& what, const Json& message) {
        if (what == "describe") return {{"gpus", own.machine().gpus}, {"node", node}};
        if (what == "prepare") return prepare(message);
        if (what == "release") {
            measurement.reset();
            if (message.at("failed")) own.forget_shared();
            return Json::object();
        }
        if (!measurement) throw Error("nothing is prepared", what, "", ExitCode::failure);
        if (what == "run") return {{"seconds", measurement->run()}};
        const Check check = measurement->verify();
        return {{"relative_error", check.error}, {"limit", check.limit}, {"passed", check.passed()}};
    }
};

}  // namespace

std::unique_ptr<Device> lead_crew(std::unique_ptr<Device> own, Crew crew, const JobPlace& place,
                                  const std::string& node) {
    return std::make_unique<CrewDevice>(std::move(own), std::move(crew), place, node);
}

void serve_crew(Device& own, CrewMember& member, const JobPlace& place, const std::string& node) {
    Membership membership{own, node, 0, {}, nullptr};
    while (const std::optional<Json> message = member.next(leader_patience)) {
        const std::string what = message->value("do", std::string());
        if (what == "end") return;
        Json answer;
        try {
            if (what == "plan") {
                PlanMachine machine = own.machine();
                machine.gpus = message->at("gpus");
                machine.gpus_per_node = message->at("per_node");
                membership.probes = all_probes(machine);
                membership.first_rank = message->at("ranks").at(static_cast<std::size_t>(place.rank));
                answer = Json::object();
            } else {
                answer = membership.obey(what, *message);
            }
        } catch (const std::exception& error) {
            answer = answer_of(error);
        }
        member.answer(answer);
    }
    throw Error(fmt::format("process {} hears no more from the first process", place.rank), "",
                "look for the first process's error message", ExitCode::failure);
}

}  // namespace headroom
