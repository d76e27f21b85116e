// SPDX-License-Identifier: Apache-2.0
#include <fmt/core.h>

#include <span>

#include "planner/json.hpp"
#include "planner/report.hpp"
#include "planner/which_tensor.hpp"
#include "reports/numbers.hpp"
#include "reports/table.hpp"

namespace headroom {
namespace {

constexpr std::size_t most_tensors = 12;

std::string table_of(std::span<const NamedTensor> tensors, const char* title) {
    Table table({{title, Align::left, true}, {"group"}, {"phase"}, {"GiB", Align::right}});
    for (const NamedTensor& tensor : tensors) {
        table.row({tensor.name, std::string(to_string(tensor.group)), std::string(to_string(tensor.phase)),
                   gib(tensor.bytes)});
    }
    return table.text(page_width, 2);
}

Json json_of(const std::vector<NamedTensor>& tensors) {
    Json json = Json::array();
    for (const NamedTensor& tensor : tensors) {
        json.push_back({{"name", tensor.name},
                        {"group", to_string(tensor.group)},
                        {"phase", to_string(tensor.phase)},
                        {"bytes", tensor.bytes.value}});
    }
    return json;
}

std::string rows_text(const RowCount& row) {
    if (row.fewest == row.most) return with_separators(row.fewest);
    return fmt::format("{} to {}", with_separators(row.fewest), with_separators(row.most));
}

}  // namespace

std::string suspects_text(const Suspects& suspects, const std::string& size, bool all, const Style& style) {
    std::string text = style.strong("Which tensor has " + size + "?") + "\n";
    const std::size_t count = suspects.tensors.size();
    const std::size_t shown = all ? count : std::min(most_tensors, count);
    if (suspects.beyond_device) text += "  More than the whole GPU has.\n";
    if (count > 0) text += table_of({suspects.tensors.data(), shown}, "of this step");
    if (count > shown) text += fmt::format("  and {} more, which --all shows\n", count - shown);
    if (count == 0) text += "  None of this step.\n" + table_of(suspects.nearest, "the nearest");
    Table rows({{"or rows of"}, {"columns", Align::right}, {"bytes", Align::right}, {"rows", Align::right}});
    for (const RowCount& row : suspects.rows) {
        rows.row({row.width, with_separators(row.columns), fmt::format("{}", row.element_bytes), rows_text(row)});
    }
    if (!suspects.rows.empty()) text += "\n" + rows.text(page_width, 2);
    return text;
}

Json json_of(const Suspects& suspects) {
    Json rows = Json::array();
    for (const RowCount& row : suspects.rows) {
        rows.push_back({{"width", row.width},
                        {"columns", row.columns},
                        {"element_bytes", row.element_bytes},
                        {"rows", {row.fewest, row.most}}});
    }
    return {{"size_bytes_range", {suspects.least.value, suspects.most.value}},
            {"tensors", json_of(suspects.tensors)},
            {"nearest", json_of(suspects.nearest)},
            {"rows", std::move(rows)}};
}

}  // namespace headroom
