// SPDX-License-Identifier: Apache-2.0
// Host threads that drive one GPU.
#pragma once

#include <string>

namespace headroom {

/// "0000:1B:00.0"
std::string pci_bus_id(int gpu);

/// Makes the GPU current in this thread and binds the thread to the CPUs beside it; says what was done about that.
std::string enter_gpu(int gpu);

}  // namespace headroom
