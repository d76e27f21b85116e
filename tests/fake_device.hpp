// SPDX-License-Identifier: Apache-2.0
// A GPU machine for tests: time passes when a probe runs, results are what the test says.
#pragma once

#include <functional>
#include <map>
#include <string>

#include "calibrate/device.hpp"
#include "calibrate/session.hpp"

namespace headroom {

class FakeDevice : public Device {
 public:
    double clock = 0;            ///< seconds
    double seconds = 0.01;       ///< of one run of any probe
    std::vector<double> series;  ///< of successive runs, in turn, when not empty
    Check check{1e-3, 1e-2, true};
    std::map<std::string, std::function<void()>> preparing;  ///< called for the probe of that name
    bool alive = true;
    std::string driver = "580.1";
    int runs = 0;

    Json provenance() override {
        return {{"record", "provenance"},
                {"schema", probe_file_schema},
                {"method_version", probe_method_version},
                {"gpus", {{{"name", "fake"}}}},
                {"driver", driver},
                {"libraries", Json::object()},
                {"host", {{"cpu", "fake"}}}};
    }
    PlanMachine machine() override { return {}; }
    GpuState state() override { return {1500, 3201, 60, 690, {"software power cap"}}; }
    bool usable() override { return alive; }
    std::unique_ptr<PreparedProbe> prepare(const Probe& probe) override {
        if (const auto action = preparing.find(probe.name); action != preparing.end()) action->second();
        return std::make_unique<Fake>(*this);
    }
    SessionOptions options() {
        return {[this] { return clock; }, [] { return std::string("2026-11-30T08:00:00Z"); }, {}, nullptr};
    }

 private:
    class Fake : public PreparedProbe {
     public:
        explicit Fake(FakeDevice& device) : device_(device) {}
        double run() override {
            const auto turn = static_cast<std::size_t>(device_.runs++);
            const double taken =
                device_.series.empty() ? device_.seconds : device_.series[turn % device_.series.size()];
            device_.clock += taken;
            return taken;
        }
        Check verify() override { return device_.check; }

     private:
        FakeDevice& device_;
    };
};

inline Probe small_probe(const std::string& name) {
    return {name, GemmProbe{128, 64, 32}, Bytes{0}, Bytes{0}, {2, 0.05}, {5, 50, 0.01, 0, 1}, 0.1};
}

}  // namespace headroom
