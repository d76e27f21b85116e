// SPDX-License-Identifier: Apache-2.0
#include "calibrate/cuda/device.hpp"

#include <cuda_runtime_api.h>
#include <fmt/format.h>

#include <thread>

#include "calibrate/cuda/attention_probe.hpp"
#include "calibrate/cuda/collective_probes.hpp"
#include "calibrate/cuda/errors.hpp"
#include "calibrate/cuda/gemm.hpp"
#include "calibrate/cuda/host_probes.hpp"
#include "calibrate/cuda/kernel_probes.hpp"
#include "calibrate/cuda/nvml.hpp"
#include "calibrate/host_facts.hpp"

namespace headroom {
namespace {

std::string bus_id(int gpu) {
    char text[32] = {};
    check_cuda(cudaDeviceGetPCIBusId(text, sizeof text, gpu), "cudaDeviceGetPCIBusId");
    return text;
}

class CudaDevice : public Device {
 public:
    CudaDevice() {
        check_cuda(cudaGetDeviceCount(&gpus_), "cudaGetDeviceCount");
        check_cuda(cudaSetDevice(0), "cudaSetDevice");
        check_cuda(cudaFree(nullptr), "creation of the CUDA context");
        bus_id_ = bus_id(0);
    }

    Json provenance() override {
        Json gpus = Json::array();
        for (int gpu = 0; gpu < gpus_; ++gpu) gpus.push_back(describe(gpu));
        int driver = 0, runtime = 0;
        check_cuda(cudaDriverGetVersion(&driver), "cudaDriverGetVersion");
        check_cuda(cudaRuntimeGetVersion(&runtime), "cudaRuntimeGetVersion");
        return {{"record", "provenance"},
                {"schema", probe_file_schema},
                {"method_version", probe_method_version},
                {"gpus", gpus},
                {"driver", {{"version", nvml_.driver_version()}, {"cuda", cuda_version_text(driver)}}},
                {"libraries",
                 {{"cuda_runtime", cuda_version_text(runtime)},
                  {"cublaslt", cublas_version_text()},
                  {"cudnn", cudnn_loaded_version()},
                  {"nccl", nccl_version_text()}}},
                {"nvml", nvml_.available()},
                {"host", host_facts()},
                {"environment", environment_facts()}};
    }

    PlanMachine machine() override {
        std::size_t free = 0, total = 0;
        check_cuda(cudaMemGetInfo(&free, &total), "cudaMemGetInfo");
        return {gpus_, Bytes{static_cast<std::int64_t>(free)}, Bytes{host_memory_bytes()},
                static_cast<int>(std::thread::hardware_concurrency())};
    }

    GpuState state() override { return nvml_.state(bus_id_); }

    std::unique_ptr<Measurement> prepare(const Probe& probe) override {
        if (const auto* work = std::get_if<HostCopyProbe>(&probe.work)) return prepare_host_copy(0, *work);
        if (const auto* work = std::get_if<ZeroFillProbe>(&probe.work)) return prepare_zero_fill(0, *work);
        if (const auto* work = std::get_if<HostGapProbe>(&probe.work)) return prepare_host_gap(*work);
        if (const auto* work = std::get_if<DeviceKernelProbe>(&probe.work)) return prepare_device_kernel(*work);
        if (const auto* work = std::get_if<GemmProbe>(&probe.work)) return prepare_gemm(*work);
        if (const auto* work = std::get_if<AttentionProbe>(&probe.work)) return prepare_attention(*work);
        const MeshSource mesh = [this](int ranks) { return mesh_of(ranks); };
        if (const auto* work = std::get_if<CollectiveProbe>(&probe.work)) return prepare_collective(mesh, *work);
        if (const auto* work = std::get_if<OverlapProbe>(&probe.work)) return prepare_overlap(mesh, *work);
        mesh_.reset();  // memory is read before and after a new one
        return prepare_collective_memory(std::get<CollectiveMemoryProbe>(probe.work));
    }

    bool usable() override { return cudaDeviceSynchronize() == cudaSuccess; }

 private:
    /// The last communicators are kept: the next probe mostly wants the same.
    std::shared_ptr<NcclMesh> mesh_of(int ranks) {
        if (!mesh_ || mesh_->size() != ranks) {
            mesh_.reset();
            mesh_ = std::make_shared<NcclMesh>(ranks);
        }
        return mesh_;
    }

    Json describe(int gpu) const {
        cudaDeviceProp properties{};
        check_cuda(cudaGetDeviceProperties(&properties, gpu), "cudaGetDeviceProperties");
        Json result{{"name", properties.name},
                    {"compute_capability", fmt::format("{}.{}", properties.major, properties.minor)},
                    {"streaming_multiprocessors", properties.multiProcessorCount},
                    {"memory_bytes", properties.totalGlobalMem},
                    {"l2_bytes", properties.l2CacheSize}};
        result.update(nvml_.identity(bus_id(gpu)));
        return result;
    }

    int gpus_ = 0;
    std::string bus_id_;
    Nvml nvml_;
    std::shared_ptr<NcclMesh> mesh_;
};

}  // namespace

std::unique_ptr<Device> open_cuda_device() { return std::make_unique<CudaDevice>(); }

}  // namespace headroom
