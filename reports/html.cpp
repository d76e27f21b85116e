// SPDX-License-Identifier: Apache-2.0
#include "reports/html.hpp"

#include <fmt/core.h>

#include <charconv>
#include <cmath>
#include <cstdlib>
#include <ctime>
#include <kainjow/mustache.hpp>
#include <nlohmann/json.hpp>
#include <string_view>

#include "models/error.hpp"
#include "reports/html_assets.hpp"

namespace headroom {
namespace {

namespace km = kainjow::mustache;
using Json = nlohmann::ordered_json;

/// Five digits: more than a figure shows, and a smaller file. Tokens stay exact, they are below 2^53.
double rounded(double value) {
    if (value == 0 || value == std::floor(value)) return value;
    const double unit = std::pow(10.0, 4 - std::floor(std::log10(std::fabs(value))));
    return std::round(value * unit) / unit;
}

std::string name_of(const Colour& colour) {
    return fmt::format("{}-{}", colour.family == Colour::Family::series ? "series" : "part", colour.slot);
}

Json json_of(const Axis& axis) {
    Json json{{"title", axis.title}, {"logarithmic", axis.logarithmic}, {"least", rounded(axis.least)}};
    if (axis.most != 0) json["most"] = rounded(axis.most);
    if (!axis.ticks.empty()) json["ticks"] = axis.ticks;
    return json;
}

Json json_of(const Limit& limit) { return {rounded(limit.value), limit.label}; }

Json json_of(const LineChart& chart) {
    Json json{{"kind", "lines"}, {"x", json_of(chart.x)}, {"y", json_of(chart.y)}, {"lines", Json::array()}};
    if (chart.limit) json["limit"] = json_of(*chart.limit);
    for (const Line& line : chart.lines) {
        Json points = Json::array();
        for (const Line::Point& point : line.points) {
            Json entry{rounded(point.x), rounded(point.y)};
            if (point.low && point.high) {
                entry.push_back(rounded(*point.low));
                entry.push_back(rounded(*point.high));
            }
            points.push_back(std::move(entry));
        }
        Json entry{{"name", line.name}, {"colour", name_of(line.colour)}, {"solid", line.solid}, {"ends", line.ends}};
        if (line.marked < line.points.size()) {
            entry["marked"] = line.marked;
            entry["mark_name"] = line.mark_name;
        }
        entry["points"] = std::move(points);
        json["lines"].push_back(std::move(entry));
    }
    return json;
}

Json json_of(const BarChart& chart) {
    Json json{{"kind", "bars"},
              {"x", json_of(chart.x)},
              {"rows", chart.rows},
              {"row_texts", chart.row_texts},
              {"parts", Json::array()}};
    if (chart.limit) json["limit"] = json_of(*chart.limit);
    for (const BarChart::Part& part : chart.parts) {
        Json values = Json::array();
        for (const double value : part.values) values.push_back(rounded(value));
        json["parts"].push_back({{"name", part.name}, {"colour", name_of(part.colour)}, {"values", std::move(values)}});
    }
    if (!chart.row_colours.empty()) {
        for (const Colour& colour : chart.row_colours) json["row_colours"].push_back(name_of(colour));
    }
    return json;
}

Json json_of(const SpanChart& chart) {
    Json json{{"kind", "spans"},        {"x", json_of(chart.x)},  {"rows", chart.rows},
              {"kinds", Json::array()}, {"marks", Json::array()}, {"spans", Json::array()}};
    for (const auto& kind : chart.kinds) {
        json["kinds"].push_back({{"name", kind.name}, {"colour", name_of(kind.colour)}});
    }
    for (const Limit& mark : chart.marks) json["marks"].push_back(json_of(mark));
    for (const auto& span : chart.spans) {
        json["spans"].push_back(Json{span.row, span.kind, rounded(span.start), rounded(span.length)});
    }
    return json;
}

/// JSON inside a script element: no text in it may close the element or open a comment.
std::string for_script(const Json& json) {
    const std::string text = json.dump(-1, ' ', false, Json::error_handler_t::replace);
    std::string safe;
    safe.reserve(text.size());
    for (const char c : text) {
        if (c == '<') {
            safe += "\\u003c";
        } else {
            safe += c;
        }
    }
    return safe;
}

km::data text_list(const std::vector<std::string>& texts) {
    km::data list{km::data::type::list};
    for (const std::string& text : texts) list << km::data{text};
    return list;
}

km::data data_of(const HtmlTable& table) {
    km::data columns{km::data::type::list};
    for (const auto& column : table.columns) {
        km::data entry;
        entry.set("title", column.title);
        entry.set("number", column.number);
        columns << entry;
    }
    km::data rows{km::data::type::list};
    for (const auto& row : table.rows) {
        km::data cells{km::data::type::list};
        for (std::size_t i = 0; i < row.size(); ++i) {
            km::data cell;
            cell.set("text", row[i]);
            cell.set("first", i == 0);
            cell.set("number", i < table.columns.size() && table.columns[i].number);
            cells << cell;
        }
        km::data entry;
        entry.set("cells", cells);
        rows << entry;
    }
    km::data data;
    data.set("caption", table.caption);
    data.set("columns", columns);
    data.set("rows", rows);
    return data;
}

/// Rows that the figure needs room for; 0 for one of a fixed height.
std::size_t rows_of(const HtmlFigure& figure) {
    if (const auto* bars = std::get_if<BarChart>(&figure.chart)) return bars->rows.size();
    if (const auto* spans = std::get_if<SpanChart>(&figure.chart)) return spans->rows.size();
    return 0;
}

km::data data_of(const HtmlFigure& figure) {
    km::data data;
    data.set("id", figure.id);
    data.set("title", figure.title);
    data.set("note", figure.note);
    data.set("text_alternative", figure.text_alternative);
    data.set("half_width", figure.half_width);
    data.set("rows", fmt::format("{}", rows_of(figure)));
    data.set("data", data_of(figure.data));
    return data;
}

km::data data_of(const HtmlSection& section) {
    km::data figures{km::data::type::list};
    for (const HtmlFigure& figure : section.figures) figures << data_of(figure);
    km::data tables{km::data::type::list};
    for (const HtmlTable& table : section.tables) tables << data_of(table);
    km::data data;
    data.set("id", section.id);
    data.set("title", section.title);
    data.set("paragraphs", text_list(section.paragraphs));
    data.set("has_figures", !section.figures.empty());
    data.set("figures", figures);
    data.set("tables", tables);
    return data;
}

}  // namespace

std::string html(const HtmlPage& page) {
    km::data facts{km::data::type::list};
    for (const auto& fact : page.facts) {
        km::data entry;
        entry.set("label", fact.label);
        entry.set("value", fact.value);
        if (fact.note.empty()) {
            entry.set("note", false);
        } else {
            entry.set("note", fact.note);
        }
        facts << entry;
    }
    Json figures = Json::array();
    km::data sections{km::data::type::list};
    for (const HtmlSection& section : page.sections) {
        sections << data_of(section);
        for (const HtmlFigure& figure : section.figures) {
            Json json{{"id", figure.id}};
            json.update(std::visit([](const auto& chart) { return json_of(chart); }, figure.chart));
            figures.push_back(std::move(json));
        }
    }
    km::data data;
    data.set("title", page.title);
    data.set("verdict", page.verdict);
    data.set("mood", page.good ? "good" : "bad");
    data.set("lead", text_list(page.lead));
    data.set("facts", facts);
    data.set("has_notes", !page.notes.empty());
    data.set("notes", text_list(page.notes));
    data.set("sections", sections);
    data.set("command", page.command);
    km::data others{km::data::type::list};
    for (const auto& other : page.other_commands) {
        km::data entry;
        entry.set("what", other.what);
        entry.set("command", other.command);
        others << entry;
    }
    data.set("other_commands", others);
    data.set("made", page.made);
    data.set("figure_data", for_script(figures));
    data.set("style", std::string(assets::style));
    data.set("script", std::string(assets::script));
    data.set("licence", std::string(assets::licence));
    data.set("chart_library", std::string(assets::chart_library));
    data.set("table", km::data{km::partial([] { return std::string(assets::table); })});
    km::mustache skeleton{std::string(assets::page)};
    return skeleton.render(data);
}

std::string html_style() { return std::string(assets::style); }

std::string report_date(std::int64_t now) {
    if (const char* epoch = std::getenv("SOURCE_DATE_EPOCH"); epoch != nullptr && *epoch != '\0') {
        const std::string_view text = epoch;
        const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), now);
        if (error != std::errc() || end != text.data() + text.size() || now < 0) {
            throw Error(fmt::format("'{}' is not a number of seconds", text), "SOURCE_DATE_EPOCH",
                        "unset it, or give seconds since 1970");
        }
    }
    const auto seconds = static_cast<std::time_t>(now);
    std::tm utc{};
    if (::gmtime_r(&seconds, &utc) == nullptr) return "an unknown date";
    return fmt::format("{:04}-{:02}-{:02}", utc.tm_year + 1900, utc.tm_mon + 1, utc.tm_mday);
}

}  // namespace headroom
