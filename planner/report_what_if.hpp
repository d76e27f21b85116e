// SPDX-License-Identifier: Apache-2.0
// Comparisons as people and programs read them.
#pragma once

#include <string>
#include <vector>

#include "planner/what_if.hpp"
#include "reports/style.hpp"

namespace headroom {

/// `influences` may be empty: not asked for.
std::string what_if_text(const WhatIf& comparison, const std::vector<Influence>& influences, const Style& style);
std::string what_if_json(const WhatIf& comparison, const std::vector<Influence>& influences);
/// The base's row and one for each variant, with a leading `variant` column.
std::string what_if_csv(const WhatIf& comparison);

}  // namespace headroom
