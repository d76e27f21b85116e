// SPDX-License-Identifier: Apache-2.0
// The machine: nodes of equal GPUs, what links them, and the memory a training process can have there.
#pragma once

#include <string>

#include "models/units.hpp"

namespace headroom {

struct Cluster {
    std::string name;
    std::string architecture;  ///< "ampere", "hopper", "blackwell": a calibration is inherited within one
    int nodes = 1;
    int gpus_per_node = 8;

    Bytes device_memory;  ///< what the driver reports as total, not the number on the box
    Bytes host_memory;    ///< per node
    /// Share of the host memory that training may use; the rest is the system, data loaders, page cache.
    double host_memory_usable = 0.95;

    FlopsPerSecond peak_bf16;         ///< dense, datasheet
    BytesPerSecond memory_bandwidth;  ///< datasheet
    BytesPerSecond nvlink_bandwidth;  ///< per GPU and direction; 0 where GPUs of a node meet over PCIe only
    BytesPerSecond pcie_bandwidth;    ///< per GPU and direction
    BytesPerSecond nic_bandwidth;     ///< per GPU and direction, between nodes

    // Device bytes outside PyTorch's allocator, each a named line of the plan.
    Bytes cuda_context;       ///< context, kernels and library handles of one process
    Bytes nccl_communicator;  ///< of the first communicator, that of all ranks, after its first collective
    Bytes nccl_group;         ///< of each further communicator, before its peers
    Bytes nccl_peer_buffer;   ///< per peer of an all-to-all or send/recv group

    int gpus() const { return nodes * gpus_per_node; }
};

}  // namespace headroom
