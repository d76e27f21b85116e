// SPDX-License-Identifier: Apache-2.0
// Two calibrations side by side: do two fits of one machine say the same, and if not, does their spread say why?
#pragma once

#include <string>
#include <vector>

#include "simulator/calibration.hpp"

namespace headroom {

/// A figure of both, as the simulator would use it.
struct ConstantDifference {
    std::string name;
    ConstantUnit unit;
    Constant first, second;
    double share() const { return second.value / first.value - 1; }
    /// Do the two ranges meet?
    bool within_spread() const { return first.low <= second.high && second.low <= first.high; }
};

/// Figures that both have from a measurement of their own. Curves and tables are read at shapes both were fitted on:
/// their parameters may differ where the rates do not.
std::vector<ConstantDifference> differences(const Calibration& first, const Calibration& second);

/// A line for each figure that differs by more than `tolerance`, the largest first, and how many do not.
std::string compare_text(const Calibration& first, const Calibration& second, double tolerance);

/// True when nothing differs by more than `tolerance` without the spreads saying so.
bool agree(const std::vector<ConstantDifference>& differences, double tolerance);

}  // namespace headroom
