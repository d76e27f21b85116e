// SPDX-License-Identifier: Apache-2.0
// Durations of kernels as the driver's tracing interface records them. CUPTI is looked for at run time: a machine may
// lack it, hold another version, or not permit tracing.
#pragma once

#include <functional>
#include <string>

namespace headroom {

/// Seconds that kernels and device copies took while work() ran, summed; the kernel that holds streams is left out.
/// work() must wait for its end. Throws Waived with one line when CUPTI is missing or refuses.
double traced_seconds(const std::function<void()>& work);

}  // namespace headroom
