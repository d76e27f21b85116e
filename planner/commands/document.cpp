// SPDX-License-Identifier: Apache-2.0
#include <fmt/core.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "planner/commands/catalogue.hpp"
#include "planner/json.hpp"
#include "planner/report.hpp"
#include "reports/csv.hpp"
#include "reports/numbers.hpp"
#include "reports/table.hpp"

namespace headroom {

namespace {

/// For people: separators, yes and no, a dash for nothing.
std::string pretty(const Cell& cell) {
    if (const auto* truth = std::get_if<bool>(&cell)) return *truth ? "yes" : "no";
    if (const auto* integer = std::get_if<std::int64_t>(&cell)) return with_separators(*integer);
    if (const auto* real = std::get_if<double>(&cell)) return fmt::format("{:g}", *real);
    if (const auto* text = std::get_if<std::string>(&cell)) return *text;
    if (const auto* lines = std::get_if<std::vector<std::string>>(&cell))
        return fmt::format("{}", fmt::join(*lines, "; "));
    return "-";
}

/// For programs: exact, empty for nothing.
std::string plain(const Cell& cell) {
    if (const auto* truth = std::get_if<bool>(&cell)) return *truth ? "true" : "false";
    if (const auto* integer = std::get_if<std::int64_t>(&cell)) return std::to_string(*integer);
    if (const auto* real = std::get_if<double>(&cell)) return fmt::format("{}", *real);
    if (std::holds_alternative<std::monostate>(cell)) return "";
    return pretty(cell);
}

/// Bytes get their GiB beside them.
std::string labelled(const std::string& label, const Cell& cell) {
    const auto* integer = std::get_if<std::int64_t>(&cell);
    if (integer == nullptr || label.find("bytes") == std::string::npos || *integer == 0) return pretty(cell);
    return fmt::format("{} ({} GiB)", pretty(cell), gib({*integer}));
}

bool is_number(const Cell& cell) {
    return std::holds_alternative<std::int64_t>(cell) || std::holds_alternative<double>(cell);
}

std::string spoken(std::string name) {
    for (char& c : name) c = c == '_' ? ' ' : c;
    return name;
}

Json json_of(const Record& record, bool settings) {
    Json json = Json::object();
    for (const auto& [name, cell] : record) {
        if (settings && std::holds_alternative<std::monostate>(cell)) continue;
        Json value;
        std::visit(
            [&value](const auto& held) {
                if constexpr (!std::is_same_v<std::decay_t<decltype(held)>, std::monostate>) value = held;
            },
            cell);
        const std::size_t dot = settings ? name.find('.') : std::string::npos;
        Json& place = dot == std::string::npos ? json[name] : json[name.substr(0, dot)][name.substr(dot + 1)];
        place = std::move(value);
    }
    return json;
}

}  // namespace

std::string Document::text() const {
    if (single) {
        std::size_t widest = 0;
        for (const auto& [label, cell] : records.front()) widest = std::max(widest, display_width(label));
        std::string result;
        for (const auto& [label, cell] : records.front()) {
            if (std::holds_alternative<std::monostate>(cell)) continue;
            const std::string lead = fmt::format("{:<{}}  ", settings ? label : spoken(label), widest);
            const auto* lines = std::get_if<std::vector<std::string>>(&cell);
            if (lines == nullptr) result += paragraph(printable(settings ? plain(cell) : labelled(label, cell)), lead);
            for (std::size_t i = 0; lines != nullptr && i < lines->size(); ++i) {
                result += paragraph(printable((*lines)[i]), i == 0 ? lead : std::string(lead.size(), ' '));
            }
        }
        return result;
    }
    std::vector<Column> columns;
    for (const auto& [label, cell] : records.front()) {
        if (columns.size() == text_columns) break;
        columns.push_back({spoken(label), is_number(cell) ? Align::right : Align::left, !is_number(cell)});
    }
    columns.front().wraps = false;
    Table table(columns);
    for (const Record& record : records) {
        std::vector<std::string> cells;
        for (const auto& [label, cell] : record) cells.push_back(pretty(cell));
        table.row(cells);
    }
    return table.text();
}

std::string Document::json() const {
    Json json{{"schema_version", schema_version}};
    if (single) {
        json[name] = json_of(records.front(), settings);
    } else {
        json[name] = Json::array();
        for (const Record& record : records) json[name].push_back(json_of(record, settings));
    }
    return document(json);
}

std::string Document::csv() const {
    std::vector<std::string> fields;
    for (const auto& [label, cell] : records.front()) fields.push_back(label);
    std::string result = csv_line(fields);
    for (const Record& record : records) {
        fields.clear();
        for (const auto& [label, cell] : record) fields.push_back(plain(cell));
        result += csv_line(fields);
    }
    return result;
}

}  // namespace headroom
