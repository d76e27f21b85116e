// SPDX-License-Identifier: Apache-2.0
// One configuration beside others: what moves, and by how much.
#pragma once

#include <string>
#include <vector>

#include "planner/plan.hpp"
#include "planner/search.hpp"

namespace headroom {

struct Variant {
    std::string label;  ///< as the user asked for it
    Plan plan;
};

struct WhatIf {
    Plan base;
    std::vector<Variant> variants;
};

/// One quantity in the base and in every variant.
struct DeltaRow {
    std::string name;
    double base = 0;
    std::vector<double> variants;

    /// Largest change, either way.
    double size() const;
};

/// Bytes alive at each one's own peak, by "group: name"; largest change first, unchanged ones left out.
std::vector<DeltaRow> memory_deltas(const WhatIf& comparison);
/// Bytes of a node's host memory by name.
std::vector<DeltaRow> host_deltas(const WhatIf& comparison);
/// Exposed seconds of the step by part. Empty unless all have a step time.
std::vector<DeltaRow> time_deltas(const WhatIf& comparison);

/// "fits with both", "fits, did not before", ...
std::string verdict_change(const Plan& base, const Plan& variant);

/// A constant or a setting, and what the answer does when it is moved.
struct Influence {
    std::string name;                ///< "attention rate", "checkpointing=none"
    bool setting = false;            ///< else a constant
    double slower = 0, faster = 0;   ///< share of tokens/s per GPU; a setting has one of the two
    Bytes margin_less, margin_more;  ///< on the GPU, at the step's peak; both positive
    double speed_size() const;
    Bytes margin_size() const { return std::max(margin_less, margin_more); }
};

/// Constants of the calibration moved to the ends of their ranges, constants of the machine by a tenth, settings to
/// what else the code offers. In no order.
std::vector<Influence> influences(const Plan& plan, const Calibration& calibration);

/// The `count` that move the speed most, or the memory margin.
std::vector<Influence> strongest_on_speed(std::vector<Influence> all, std::size_t count);
std::vector<Influence> strongest_on_margin(std::vector<Influence> all, std::size_t count);

}  // namespace headroom
