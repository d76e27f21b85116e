// SPDX-License-Identifier: Apache-2.0
// The time of one training step, what it is spent on, and how far it can be trusted.
#pragma once

#include <array>
#include <string_view>
#include <vector>

#include "simulator/timeline.hpp"

namespace headroom {

struct PartTime {
    Seconds busy;     ///< alone, over all streams
    Seconds exposed;  ///< of the step
};

struct StepTime {
    Seconds seconds;
    Seconds low, high;                         ///< from the constants' ranges
    std::array<PartTime, part_count> parts{};  ///< by Part; the exposed ones sum to `seconds`

    /// The step if ring transfers hide under attention, and if they add to it: equal where no ring runs beside it.
    Seconds ring_hidden, ring_serialised;

    std::uint32_t domain = 0;  ///< bits of Domain; 0 = everything was measured like this
    std::vector<std::string_view> warnings() const { return describe_domain(domain); }
};

/// One source of doubt: the classes it moves together, and by which factors their time changes.
struct Bias {
    std::string_view name;
    std::uint32_t classes;  ///< bits of CostClass
    double fast, slow;      ///< <= 1 and >= 1
};
inline constexpr std::size_t bias_count = 11;
std::array<Bias, bias_count> biases(const Calibration& calibration, AttentionKernel kernel);

/// Throws Error when the calibration has no rates for the kernel.
void check(const Calibration& calibration, AttentionKernel kernel);

/// Plays the schedule on `timeline` and works out the interval: each bias moves the exposed time of its classes, the
/// biases are independent of each other and add in quadrature, and so does the open question of ring overlap. Of a step
/// that is not slower than `slower_than` only the seconds are worked out: some other rank decides.
StepTime predict_step(const Schedule& schedule, const Calibration& calibration, const Topology& topology,
                      AttentionKernel kernel, Timeline& timeline, Seconds slower_than = {-1});

/// The same with every op in `slices`, in the order of issue.
StepTime predict_step(const Schedule& schedule, const Calibration& calibration, const Topology& topology,
                      AttentionKernel kernel, Timeline& timeline, std::vector<Slice>& slices);

}  // namespace headroom
