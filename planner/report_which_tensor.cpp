// SPDX-License-Identifier: Apache-2.0
#include <fmt/core.h>

#include "planner/report.hpp"
#include "planner/which_tensor.hpp"
#include "reports/numbers.hpp"
#include "reports/table.hpp"

namespace headroom {
namespace {

constexpr std::size_t most_tensors = 12;

std::string rows_text(const RowCount& row) {
    if (row.fewest == row.most) return with_separators(row.fewest);
    return fmt::format("{} to {}", with_separators(row.fewest), with_separators(row.most));
}

}  // namespace

std::string suspects_text(const Suspects& suspects, const std::string& size, const Style& style) {
    std::string text = style.strong("Which tensor has " + size + "?") + "\n";
    Table tensors({{"of this step", Align::left, true}, {"group"}, {"phase"}, {"GiB", Align::right}});
    for (std::size_t i = 0; i < std::min(most_tensors, suspects.tensors.size()); ++i) {
        const NamedTensor& tensor = suspects.tensors[i];
        tensors.row({tensor.name, std::string(to_string(tensor.group)), std::string(to_string(tensor.phase)),
                     gib(tensor.bytes)});
    }
    text += suspects.tensors.empty() ? "  None of this step.\n" : tensors.text(page_width, 2);
    if (suspects.tensors.size() > most_tensors) {
        text += fmt::format("  and {} more\n", suspects.tensors.size() - most_tensors);
    }
    Table rows({{"or rows of"}, {"columns", Align::right}, {"bytes", Align::right}, {"rows", Align::right}});
    for (const RowCount& row : suspects.rows) {
        rows.row({row.width, with_separators(row.columns), fmt::format("{}", row.element_bytes), rows_text(row)});
    }
    if (!suspects.rows.empty()) text += "\n" + rows.text(page_width, 2);
    return text;
}

}  // namespace headroom
