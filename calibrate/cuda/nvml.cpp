// SPDX-License-Identifier: Apache-2.0
#include "calibrate/cuda/nvml.hpp"

#include <dlfcn.h>
#include <fmt/format.h>

#include <array>

#include "calibrate/host_facts.hpp"

namespace headroom {
namespace {

// From nvml.h, whose ABI NVIDIA keeps; the header is not part of every toolkit.
constexpr unsigned clock_sm = 1, clock_memory = 2, sensor_gpu = 0;

struct Reason {
    unsigned long long bit;
    const char* name;
};
// nvmlClocksEventReasons. Idle (0x1) and application clocks (0x2) hold nothing back.
constexpr Reason reasons[]{
    {0x4, "software power cap"}, {0x8, "hardware slowdown"},          {0x10, "sync boost"},
    {0x20, "software thermal"},  {0x40, "hardware thermal slowdown"}, {0x80, "hardware power brake"},
    {0x100, "display clocks"},
};

}  // namespace

template <class Function>
Function Nvml::find(const char* name) const {
    return library_ == nullptr ? nullptr : reinterpret_cast<Function>(::dlsym(library_, name));
}

Nvml::Nvml() : library_(::dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL)) {
    const auto initialise = find<int (*)()>("nvmlInit_v2");
    if (initialise == nullptr || initialise() != 0) {
        if (library_ != nullptr) ::dlclose(library_);
        library_ = nullptr;
    }
}

Nvml::~Nvml() {
    if (library_ == nullptr) return;
    if (const auto shutdown = find<int (*)()>("nvmlShutdown")) shutdown();
    ::dlclose(library_);
}

std::string Nvml::driver_version() const {
    const auto get = find<int (*)(char*, unsigned)>("nvmlSystemGetDriverVersion");
    std::array<char, 96> text{};
    return get != nullptr && get(text.data(), text.size()) == 0 ? text.data() : "";
}

void* Nvml::device(const std::string& bus_id) const {
    const auto get = find<int (*)(const char*, void**)>("nvmlDeviceGetHandleByPciBusId_v2");
    void* handle = nullptr;
    return get != nullptr && get(bus_id.c_str(), &handle) == 0 ? handle : nullptr;
}

GpuState Nvml::state(const std::string& bus_id) const {
    GpuState state;
    void* handle = device(bus_id);
    if (handle == nullptr) return state;
    unsigned value = 0;
    if (const auto get = find<int (*)(void*, unsigned, unsigned*)>("nvmlDeviceGetClockInfo")) {
        if (get(handle, clock_sm, &value) == 0) state.sm_clock_mhz = static_cast<int>(value);
        if (get(handle, clock_memory, &value) == 0) state.memory_clock_mhz = static_cast<int>(value);
    }
    if (const auto get = find<int (*)(void*, unsigned, unsigned*)>("nvmlDeviceGetTemperature")) {
        if (get(handle, sensor_gpu, &value) == 0) state.temperature_celsius = static_cast<int>(value);
    }
    if (const auto get = find<int (*)(void*, unsigned*)>("nvmlDeviceGetPowerUsage")) {
        if (get(handle, &value) == 0) state.power_watts = value * 1e-3;
    }
    if (const auto get = find<int (*)(void*, unsigned long long*)>("nvmlDeviceGetCurrentClocksThrottleReasons")) {
        unsigned long long bits = 0;
        if (get(handle, &bits) == 0) {
            for (const Reason& reason : reasons) {
                if ((bits & reason.bit) != 0) state.throttle.emplace_back(reason.name);
            }
        }
    }
    return state;
}

Json Nvml::identity(const std::string& bus_id) const {
    Json result = Json::object();
    void* handle = device(bus_id);
    if (handle == nullptr) return result;
    std::array<char, 96> text{};
    if (const auto get = find<int (*)(void*, char*, unsigned)>("nvmlDeviceGetUUID")) {
        if (get(handle, text.data(), text.size()) == 0) result["uuid_hash"] = short_hash(text.data());
    }
    unsigned now = 0, pending = 0;
    if (const auto get = find<int (*)(void*, unsigned*, unsigned*)>("nvmlDeviceGetEccMode")) {
        if (get(handle, &now, &pending) == 0) result["ecc"] = now != 0;
    }
    if (const auto get = find<int (*)(void*, unsigned*, unsigned*)>("nvmlDeviceGetMigMode")) {
        if (get(handle, &now, &pending) == 0) result["mig"] = now != 0;
    }
    if (const auto get = find<int (*)(void*, unsigned*)>("nvmlDeviceGetEnforcedPowerLimit")) {
        if (get(handle, &now) == 0) result["power_limit_watts"] = now / 1000;
    }
    if (const auto get = find<int (*)(void*, unsigned*)>("nvmlDeviceGetPowerManagementDefaultLimit")) {
        if (get(handle, &now) == 0) result["default_power_limit_watts"] = now / 1000;
    }
    if (const auto get = find<int (*)(void*, unsigned, unsigned*)>("nvmlDeviceGetMaxClockInfo")) {
        if (get(handle, clock_sm, &now) == 0) result["max_sm_clock_mhz"] = now;
    }
    return result;
}

}  // namespace headroom
