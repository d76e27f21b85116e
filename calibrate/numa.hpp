// SPDX-License-Identifier: Apache-2.0
// Host threads beside their GPU: on the CPUs of the memory node its PCIe slot hangs on. Pages a bound thread touches
// first lie on that node too.
#pragma once

#include <string>
#include <vector>

namespace headroom {

/// Node of a PCI device ("0000:1B:00.0"), by the kernel's file; -1 where it says none, as on most virtual machines.
/// `root` is "/sys" but in tests.
int numa_node_of(const std::string& pci_bus_id, const std::string& root = "/sys");

/// CPUs of a node; empty for an unknown one.
std::vector<int> cpus_of_node(int node, const std::string& root = "/sys");
/// "0-3,8,10-11" as the kernel writes lists of CPUs. Anything else gives an empty list.
std::vector<int> parse_cpu_list(const std::string& text);

/// The calling thread may run on these CPUs from here on, as far as the process may. False when none is left, or the
/// system refuses; then nothing changes.
bool bind_this_thread(const std::vector<int>& cpus);

/// What stands in the provenance: which node the threads of a GPU are bound to, or why to none.
std::string binding_text(int node, bool bound);

}  // namespace headroom
