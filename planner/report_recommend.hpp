// SPDX-License-Identifier: Apache-2.0
// Recommendations as people and programs read them.
#pragma once

#include <string>

#include "planner/recommend.hpp"
#include "reports/style.hpp"

namespace headroom {

std::string recommend_text(const Recommendations& answer, const Style& style);
/// {"recommendations": [{"rank", "recipe", "plan", "why"}], "considered", "feasible"} and what stands beside it.
std::string recommend_json(const Recommendations& answer);
/// One row for each recommendation, inputs first.
std::string recommend_csv(const Recommendations& answer);

/// "8x2 U8": Ulysses x ring, then what cuts heads or tokens.
std::string brief_degrees(const Recipe& recipe);
/// "offload.optimizer=true, sharding.strategy=zero2".
std::string settings_text(const std::vector<Difference>& changed);
/// "+12.3%"; "0.0%" for less than a twentieth of a percent.
std::string signed_percent(double share);
/// The command that plans this recipe on the bench that the flags name, in lines of at most 80 columns.
std::string plan_command_line(const Recipe& recipe, const Recipe& plain, const std::vector<std::string>& bench_flags);

}  // namespace headroom
