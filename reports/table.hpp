// SPDX-License-Identifier: Apache-2.0
// Aligned text: tables and paragraphs that stay within a width. Widths count code points, so UTF-8 lines up.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace headroom {

inline constexpr std::size_t page_width = 80;

enum class Align { left, right };

struct Column {
    std::string title;
    Align align = Align::left;
    bool wraps = false;  ///< gives way, word by word, when the table is too wide
};

class Table {
 public:
    explicit Table(std::vector<Column> columns) : columns_(std::move(columns)) {}

    /// Cells from the left; missing ones stay empty.
    void row(std::vector<std::string> cells);
    /// Heading, then rows, each line ended, without trailing blanks.
    std::string text(std::size_t width = page_width, std::size_t indent = 0) const;

 private:
    std::vector<std::size_t> widths(std::size_t width, std::size_t indent) const;

    std::vector<Column> columns_;
    std::vector<std::vector<std::string>> rows_;
};

/// Columns a terminal needs for a UTF-8 text (one per code point).
std::size_t display_width(std::string_view text);

/// Control characters become '?', so that a name from a file cannot move the cursor.
std::string printable(std::string_view text);

/// Lines of at most `width`, broken at blanks; a longer word is kept whole.
std::vector<std::string> wrap_words(std::string_view text, std::size_t width);

/// A paragraph: the first line behind `first`, the others indented as deep as `first` is wide.
std::string paragraph(std::string_view text, std::string_view first = "", std::size_t width = page_width);
/// A paragraph whose lines but the first are indented by two.
std::string hanging(std::string_view text, std::size_t width = page_width);

}  // namespace headroom
