// SPDX-License-Identifier: Apache-2.0
// A report as one HTML file that needs nothing else: sections of text, figures and tables. Figures are drawn by
// Chart.js, which is part of the file; each has a text alternative, and its data as a table that works without scripts.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace headroom {

/// A colour by its role; page.css gives each a value for light, for dark and for print.
struct Colour {
    enum class Family { series, part } family = Family::series;
    int slot = 0;  ///< below series_colours or part_colours
};
inline constexpr int series_colours = 6;  ///< each with a point shape of its own
inline constexpr int part_colours = 9;

struct HtmlTable {
    struct Column {
        std::string title;
        bool number = false;  ///< aligned right
    };
    std::string caption;
    std::vector<Column> columns;
    std::vector<std::vector<std::string>> rows;  ///< the first cell names the row
};

struct Axis {
    std::string title;  ///< with its unit
    bool logarithmic = false;
    double least = 0;
    double most = 0;                                    ///< 0: as the data ask
    std::vector<std::pair<double, std::string>> ticks;  ///< empty: as the data ask
};

struct Limit {
    double value = 0;
    std::string label;
};

struct Line {
    struct Point {
        double x = 0, y = 0;
        std::optional<double> low, high;
    };
    std::string name;
    Colour colour;
    std::vector<Point> points;
    std::size_t solid = 0;  ///< points that are possible; the line is dashed behind them
    bool ends = false;      ///< a bar marks the last possible point
    std::string mark_name;  ///< of the point that is marked
    std::size_t marked = ~std::size_t{0};
};

struct LineChart {
    Axis x, y;
    std::vector<Line> lines;
    std::optional<Limit> limit;  ///< a horizontal line
};

/// Horizontal bars, one a row, stacked from parts.
struct BarChart {
    struct Part {
        std::string name;
        Colour colour;
        std::vector<double> values;  ///< by row
    };
    Axis x;
    std::vector<std::string> rows;
    std::vector<std::string> row_texts;  ///< behind the bars
    std::vector<Part> parts;
    std::vector<Colour> row_colours;  ///< instead of the part's, where there is one part
    std::optional<Limit> limit;       ///< a vertical line
};

/// Spans of time on rows.
struct SpanChart {
    struct Kind {
        std::string name;
        Colour colour;
    };
    struct Span {
        std::size_t row, kind;
        double start, length;
    };
    Axis x;
    std::vector<std::string> rows;
    std::vector<Kind> kinds;
    std::vector<Span> spans;
    std::vector<Limit> marks;  ///< vertical lines
};

struct HtmlFigure {
    std::string id;  ///< letters, digits and dashes
    std::string title;
    std::string note;
    std::string text_alternative;  ///< what a reader sees in the figure
    std::variant<LineChart, BarChart, SpanChart> chart;
    HtmlTable data;
    bool half_width = false;
};

struct HtmlSection {
    std::string id, title;
    std::vector<std::string> paragraphs;
    std::vector<HtmlFigure> figures;
    std::vector<HtmlTable> tables;
};

struct HtmlPage {
    struct Fact {
        std::string label, value, note;
    };
    std::string title;
    std::string verdict;
    bool good = true;
    std::vector<std::string> lead;  ///< paragraphs under the verdict
    std::vector<Fact> facts;
    std::vector<std::string> notes;  ///< what limits the answer
    std::vector<HtmlSection> sections;
    std::string command;  ///< reproduces the page
    struct Command {
        std::string what, command;
    };
    std::vector<Command> other_commands;
    std::string made;  ///< when and by what
};

std::string html(const HtmlPage& page);

/// The style sheet of the page, for tests of its contrasts.
std::string html_style();

/// The value of SOURCE_DATE_EPOCH where it is set (reproducible builds), else `now`, as "2026-11-30". Throws Error for
/// a value that is not a number.
std::string report_date(std::int64_t now);

}  // namespace headroom
