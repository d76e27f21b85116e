// SPDX-License-Identifier: Apache-2.0
#include "calibrate/cuda/device.hpp"

#include <cuda_runtime_api.h>
#include <fmt/format.h>

#include <thread>

#include "calibrate/cuda/attention_probe.hpp"
#include "calibrate/cuda/collective_probes.hpp"
#include "calibrate/cuda/copy_overlap.hpp"
#include "calibrate/cuda/cross_check.hpp"
#include "calibrate/cuda/errors.hpp"
#include "calibrate/cuda/gemm.hpp"
#include "calibrate/cuda/gpu_thread.hpp"
#include "calibrate/cuda/host_probes.hpp"
#include "calibrate/cuda/kernel_probes.hpp"
#include "calibrate/cuda/nvml.hpp"
#include "calibrate/cuda/sustained_probe.hpp"
#include "calibrate/host_facts.hpp"

namespace headroom {
namespace {

class CudaDevice : public Device {
 public:
    explicit CudaDevice(const GpuChoice& choice) : first_(choice.first) {
        int visible = 0;
        check_cuda(cudaGetDeviceCount(&visible), "cudaGetDeviceCount");
        if (visible == 1 && choice.one) first_ = 0;  // the launcher shows each process its own
        gpus_ = choice.one ? 1 : visible;
        if (first_ >= visible) {
            throw Error(fmt::format("process {} of this node has no GPU: {} are visible", first_, visible), "",
                        "start as many processes on a node as it has GPUs, or one for all of them", ExitCode::failure);
        }
        binding_ = enter_gpu(first_);
        check_cuda(cudaFree(nullptr), "creation of the CUDA context");
        bus_id_ = pci_bus_id(first_);
        std::size_t free = 0, total = 0;
        check_cuda(cudaMemGetInfo(&free, &total), "cudaMemGetInfo");
        context_bytes_ = static_cast<std::int64_t>(total - free);
    }

    Json provenance() override {
        Json gpus = Json::array();
        for (int gpu = 0; gpu < gpus_; ++gpu) gpus.push_back(describe(first_ + gpu));
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
                {"numa", binding_},
                {"context_bytes", context_bytes_},
                {"peers", peers()},
                {"host", host_facts()},
                {"environment", environment_facts()}};
    }

    PlanMachine machine() override {
        std::size_t free = 0, total = 0;
        check_cuda(cudaMemGetInfo(&free, &total), "cudaMemGetInfo");
        PlanMachine machine;
        machine.gpus = gpus_;
        machine.device_memory = Bytes{static_cast<std::int64_t>(free)};
        machine.host_memory = Bytes{host_memory_bytes()};
        machine.cpu_threads = static_cast<int>(std::thread::hardware_concurrency());
        return machine;
    }

    GpuState state() override { return nvml_.state(bus_id_); }

    std::unique_ptr<PreparedProbe> prepare(const Probe& probe) override {
        if (const auto* work = std::get_if<HostCopyProbe>(&probe.work)) return prepare_host_copy(*work);
        if (const auto* work = std::get_if<ZeroFillProbe>(&probe.work)) return prepare_zero_fill(*work);
        if (const auto* work = std::get_if<HostGapProbe>(&probe.work)) return prepare_host_gap(*work);
        if (const auto* work = std::get_if<CopyOverlapProbe>(&probe.work)) return prepare_copy_overlap(*work);
        if (const auto* work = std::get_if<SustainedProbe>(&probe.work)) return prepare_sustained(*work);
        if (const auto* work = std::get_if<CrossCheckProbe>(&probe.work)) {
            return prepare_cross_check(std::visit([](const auto& one) { return prepare_kernels(one); }, work->work));
        }
        if (is_shared(probe.work)) return join(probe, invitation(probe), 0);
        return std::visit([](const auto& one) { return prepare_kernels(one); }, kernel_probe(probe.work));
    }

    std::string invitation(const Probe& probe) override {
        if (std::holds_alternative<CollectiveMemoryProbe>(probe.work)) return new_nccl_ids(3);
        // The last communicators are kept: the next probe mostly wants the same.
        return mesh_ && mesh_->size() == ranks_of(probe.work) ? std::string() : new_nccl_ids(1);
    }

    std::unique_ptr<PreparedProbe> join(const Probe& probe, const std::string& invitation, int first_rank) override {
        const MeshPlace place{ranks_of(probe.work), first_rank, first_, gpus_};
        if (std::holds_alternative<CollectiveMemoryProbe>(probe.work)) {
            mesh_.reset();  // memory is read before and after a new one
            return prepare_collective_memory(place, invitation);
        }
        if (!invitation.empty()) {
            mesh_.reset();
            mesh_ = std::make_shared<NcclMesh>(place, invitation);
        }
        if (!mesh_) throw Error("the communicator of an earlier probe is gone", probe.name, "", ExitCode::failure);
        if (const auto* work = std::get_if<CollectiveProbe>(&probe.work)) return prepare_collective(mesh_, *work);
        return prepare_overlap(mesh_, std::get<OverlapProbe>(probe.work));
    }

    void forget_shared() override { mesh_.reset(); }

    bool usable() override { return cudaDeviceSynchronize() == cudaSuccess; }

 private:
    static std::unique_ptr<PreparedProbe> prepare_kernels(const DeviceKernelProbe& work) {
        return prepare_device_kernel(work);
    }
    static std::unique_ptr<PreparedProbe> prepare_kernels(const GemmProbe& work) { return prepare_gemm(work); }
    static std::unique_ptr<PreparedProbe> prepare_kernels(const AttentionProbe& work) {
        return prepare_attention(work);
    }

    /// Which GPUs reach each other directly, and how fast by the driver's ranking (0 is the best).
    Json peers() const {
        Json result = Json::array();
        for (int from = first_; from < first_ + gpus_; ++from) {
            Json row = Json::array();
            for (int to = first_; to < first_ + gpus_; ++to) {
                int access = 0, rank = 0;
                if (from != to) {
                    cudaDeviceCanAccessPeer(&access, from, to);
                    cudaDeviceGetP2PAttribute(&rank, cudaDevP2PAttrPerformanceRank, from, to);
                }
                row.push_back(access != 0 ? Json(rank) : Json(nullptr));
            }
            result.push_back(row);
        }
        return result;
    }

    Json describe(int gpu) const {
        cudaDeviceProp properties{};
        check_cuda(cudaGetDeviceProperties(&properties, gpu), "cudaGetDeviceProperties");
        Json result{{"name", properties.name},
                    {"compute_capability", fmt::format("{}.{}", properties.major, properties.minor)},
                    {"streaming_multiprocessors", properties.multiProcessorCount},
                    {"memory_bytes", properties.totalGlobalMem},
                    {"l2_bytes", properties.l2CacheSize}};
        result.update(nvml_.identity(pci_bus_id(gpu)));
        return result;
    }

    int first_, gpus_ = 0;
    std::int64_t context_bytes_ = 0;  ///< in use on the first GPU before anything was launched
    std::string bus_id_, binding_;
    Nvml nvml_;
    std::shared_ptr<NcclMesh> mesh_;
};

}  // namespace

std::unique_ptr<Device> open_cuda_device(const GpuChoice& choice) { return std::make_unique<CudaDevice>(choice); }

}  // namespace headroom
