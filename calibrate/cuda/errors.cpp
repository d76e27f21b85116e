// SPDX-License-Identifier: Apache-2.0
#include "calibrate/cuda/errors.hpp"

#include <fmt/format.h>

#include "models/error.hpp"

namespace headroom {

std::string cuda_version_text(int version) { return fmt::format("CUDA {}.{}", version / 1000, version % 1000 / 10); }

std::string cuda_hint(cudaError_t status) {
    switch (status) {
        case cudaErrorInsufficientDriver: {
            int driver = 0;
            cudaDriverGetVersion(&driver);
            if (driver == 0) return "no NVIDIA driver is loaded here: run this on a GPU node";
            return fmt::format("the driver serves up to {}, this program needs {}: update the driver",
                               cuda_version_text(driver), cuda_version_text(CUDART_VERSION));
        }
        case cudaErrorNoDevice:
            return "no GPU is visible: check nvidia-smi and CUDA_VISIBLE_DEVICES";
        case cudaErrorSystemNotReady:
            return "the fabric manager is not running, or not of the driver's version";
        case cudaErrorMemoryAllocation:
            return "other programs hold memory there (nvidia-smi shows them), or leave the probe out with --skip";
        case cudaErrorStubLibrary:
            return "the stub of libcuda was loaded: take the toolkit's stubs out of LD_LIBRARY_PATH";
        case cudaErrorNoKernelImageForDevice:
            return "this GPU's architecture was not built in: configure with -DCMAKE_CUDA_ARCHITECTURES=native";
        case cudaErrorIllegalAddress:
        case cudaErrorMisalignedAddress:
        case cudaErrorLaunchFailure:
            return "the GPU context is lost: start again with --resume, and report the probe";
        default:
            return "nvidia-smi and the kernel log (dmesg, Xid lines) may say more";
    }
}

void check_cuda(cudaError_t status, const std::string& call) {
    if (status == cudaSuccess) return;
    cudaGetLastError();  // not to be found again by the next call
    throw Error(fmt::format("{} failed with {} ({}): {}", call, cudaGetErrorName(status), static_cast<int>(status),
                            cudaGetErrorString(status)),
                "", cuda_hint(status), ExitCode::failure);
}

}  // namespace headroom
