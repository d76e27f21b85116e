// SPDX-License-Identifier: Apache-2.0
// Clocks, power and identity of GPUs through NVML, which is looked up at run time: without it those fields stay empty.
#pragma once

#include <string>

#include "calibrate/device.hpp"

namespace headroom {

class Nvml {
 public:
    Nvml();
    ~Nvml();
    Nvml(const Nvml&) = delete;
    Nvml& operator=(const Nvml&) = delete;

    bool available() const { return library_ != nullptr; }
    std::string driver_version() const;
    /// By PCI bus id, as cudaDeviceGetPCIBusId gives it.
    GpuState state(const std::string& bus_id) const;
    /// uuid_hash, ecc, mig, power_limit_watts, default_power_limit_watts, max_sm_clock_mhz
    Json identity(const std::string& bus_id) const;

 private:
    void* device(const std::string& bus_id) const;
    template <class Function>
    Function find(const char* name) const;

    void* library_ = nullptr;
};

}  // namespace headroom
