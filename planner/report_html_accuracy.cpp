// SPDX-License-Identifier: Apache-2.0
// What the page says about accuracy: the predictions against results that others have measured and published.
#include <fmt/format.h>

#include "planner/report_html.hpp"

namespace headroom {
namespace {

void add_rows(HtmlTable& table, const char* what, const Summaries& summaries) {
    const auto add = [&](const std::string& name, const ErrorSummary& summary) {
        if (summary.count == 0) return;
        table.rows.push_back({fmt::format("{}: {}", what, name), fmt::format("{}", summary.count),
                              fmt::format("{:+.1f}", summary.median), fmt::format("{:.1f}", summary.mean_absolute),
                              fmt::format("{:+.1f}", summary.worst), summary.worst_id});
    };
    for (const ErrorSummary& summary : summaries.by_method) add(summary.name, summary);
    add("all", summaries.overall);
}

}  // namespace

HtmlSection accuracy_section(const Validation& validation) {
    HtmlSection section{"accuracy", "Accuracy against measured results", {}, {}, {}};
    const std::size_t right = validation.count(Agreement::right);
    const std::size_t failed = validation.count(Agreement::said_fits_and_failed);
    const std::size_t refused = validation.count(Agreement::refused_though_it_ran);
    section.paragraphs.push_back(fmt::format(
        "Published runs, none of which any constant was fitted to, planned as their authors describe them: {} verdicts "
        "are right, {} said to fit failed, {} refused ran. headroom validate lists every figure.",
        right, failed, refused));
    if (validation.with_interval > 0) {
        section.paragraphs.push_back(fmt::format("Of {} measured times {} lie inside the predicted interval.",
                                                 validation.with_interval, validation.inside_interval));
    }
    HtmlTable table{"Errors in percent of the measured figure; more than 0: predicted too much",
                    {{"Figures", false},
                     {"Count", true},
                     {"Median", true},
                     {"Mean size", true},
                     {"Worst", true},
                     {"Worst run", false}},
                    {}};
    add_rows(table, "memory", validation.memory);
    add_rows(table, "time", validation.time);
    section.tables.push_back(std::move(table));
    return section;
}

}  // namespace headroom
