// SPDX-License-Identifier: Apache-2.0
#include "calibrate/cuda/gpu_thread.hpp"

#include <cuda_runtime_api.h>

#include "calibrate/cuda/errors.hpp"
#include "calibrate/numa.hpp"

namespace headroom {

std::string pci_bus_id(int gpu) {
    char text[32] = {};
    check_cuda(cudaDeviceGetPCIBusId(text, sizeof text, gpu), "cudaDeviceGetPCIBusId");
    return text;
}

std::string enter_gpu(int gpu) {
    check_cuda(cudaSetDevice(gpu), "cudaSetDevice");
    const int node = numa_node_of(pci_bus_id(gpu));
    return binding_text(node, bind_this_thread(cpus_of_node(node)));
}

}  // namespace headroom
