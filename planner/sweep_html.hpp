// SPDX-License-Identifier: Apache-2.0
// A sweep as one HTML page: what the rows come to, not the rows.
#pragma once

#include <string>
#include <vector>

#include "planner/report_html.hpp"
#include "planner/sweep_summary.hpp"

namespace headroom {

struct SweepOrigin {
    ReportOrigin page;
    std::string rows_command;  ///< that writes every row
    std::int64_t rows_asked = 0;
};

HtmlPage sweep_page(const SweepSummary& summary, const Grid& grid, const std::vector<TimeBasis>& bases,
                    const SweepOrigin& origin);

/// Figures are drawn for so many machines, the first of the grid; tables hold all of them.
inline constexpr std::size_t drawn_benches = 4;
/// Contexts that a figure and its table show at most: the longest of each method, the roundest, and some between.
inline constexpr std::size_t shown_contexts = 40;

// The pieces of the page.
HtmlSection outcome_section(const SweepSummary& summary);
HtmlSection bench_section(const SweepSummary& summary);
HtmlSection reach_section(const SweepBench& bench, const Grid& grid, const std::string& suffix);
HtmlSection frontier_section(const SweepBench& bench, const Grid& grid, const std::string& suffix);
HtmlSection need_section(const SweepBench& bench, const std::string& suffix);
HtmlSection choice_section(const SweepSummary& summary, const Grid& grid);
HtmlSection reason_section(const SweepSummary& summary);
HtmlSection grid_section(const SweepSummary& summary, const Grid& grid, const std::vector<TimeBasis>& bases);

// Words that the pieces share.
/// "llama3-8b on 8 GPUs of h100-sxm-80gb".
std::string bench_name(const SweepBench& bench);
struct Configurations {
    std::string shared;            ///< "; all with batch 1" for a caption, or empty
    std::vector<std::string> own;  ///< of each row: degrees and chunks, and what else the grid varies
};
Configurations configurations(const std::vector<const SweepRow*>& rows, const Grid& grid);
std::vector<Tokens> contexts_shown(const SweepBench& bench);

}  // namespace headroom
