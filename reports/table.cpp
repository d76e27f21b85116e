// SPDX-License-Identifier: Apache-2.0
#include "reports/table.hpp"

#include <algorithm>
#include <numeric>

namespace headroom {

namespace {

constexpr std::size_t gap = 2;
constexpr std::size_t narrowest_wrap = 8;

void append_padded(std::string& line, const std::string& cell, std::size_t width, Align align) {
    const std::size_t used = display_width(cell);
    const std::string blanks(width > used ? width - used : 0, ' ');
    line += align == Align::right ? blanks + cell : cell + blanks;
}

void end_line(std::string& text, std::string line) {
    line.erase(line.find_last_not_of(' ') + 1);
    text += line + '\n';
}

}  // namespace

std::size_t display_width(std::string_view text) {
    return static_cast<std::size_t>(std::count_if(
        text.begin(), text.end(), [](char c) { return (static_cast<unsigned char>(c) & 0xC0U) != 0x80U; }));
}

std::string printable(std::string_view text) {
    std::string clean(text);
    for (char& c : clean) {
        if (static_cast<unsigned char>(c) < 0x20 || c == 0x7F) c = '?';
    }
    return clean;
}

std::vector<std::string> wrap_words(std::string_view text, std::size_t width) {
    std::vector<std::string> lines(1);
    std::size_t at = 0;
    while (at < text.size()) {
        const std::size_t end = std::min(text.find(' ', at), text.size());
        const std::string_view word = text.substr(at, end - at);
        at = end + 1;
        if (word.empty()) continue;
        if (!lines.back().empty() && display_width(lines.back()) + 1 + display_width(word) > width) {
            lines.emplace_back();
        }
        if (!lines.back().empty()) lines.back() += ' ';
        lines.back() += word;
    }
    return lines;
}

std::string paragraph(std::string_view text, std::string_view first, std::size_t width) {
    const std::size_t indent = display_width(first);
    std::string lead(first);
    std::string result;
    for (const std::string& line : wrap_words(text, width > indent ? width - indent : 1)) {
        end_line(result, lead + line);
        lead.assign(indent, ' ');
    }
    return result;
}

std::string hanging(std::string_view text, std::size_t width) {
    std::string result;
    for (const std::string& line : wrap_words(text, width - 2)) end_line(result, (result.empty() ? "" : "  ") + line);
    return result;
}

void Table::row(std::vector<std::string> cells) {
    for (std::string& cell : cells) cell = printable(cell);
    cells.resize(columns_.size());
    rows_.push_back(std::move(cells));
}

std::vector<std::size_t> Table::widths(std::size_t width, std::size_t indent) const {
    std::vector<std::size_t> result;
    for (std::size_t c = 0; c < columns_.size(); ++c) {
        std::size_t widest = display_width(columns_[c].title);
        for (const auto& cells : rows_) widest = std::max(widest, display_width(cells[c]));
        result.push_back(widest);
    }
    const std::size_t total =
        std::accumulate(result.begin(), result.end(), indent + gap * (std::max<std::size_t>(result.size(), 1) - 1));
    std::size_t excess = total > width ? total - width : 0;
    for (; excess > 0; --excess) {  // the widest of those that wrap gives way
        std::size_t widest = columns_.size();
        for (std::size_t c = 0; c < columns_.size(); ++c) {
            const bool can = columns_[c].wraps && result[c] > narrowest_wrap;
            if (can && (widest == columns_.size() || result[c] > result[widest])) widest = c;
        }
        if (widest == columns_.size()) break;
        --result[widest];
    }
    return result;
}

std::string Table::text(std::size_t width, std::size_t indent) const {
    const std::vector<std::size_t> column_widths = widths(width, indent);
    std::string result;
    const auto append_row = [&](const std::vector<std::string>& cells) {
        std::vector<std::vector<std::string>> lines;
        std::size_t height = 1;
        for (std::size_t c = 0; c < columns_.size(); ++c) {
            const std::size_t room = columns_[c].wraps ? column_widths[c] : std::string::npos;
            lines.push_back(room == std::string::npos ? std::vector{cells[c]} : wrap_words(cells[c], room));
            height = std::max(height, lines.back().size());
        }
        for (std::size_t l = 0; l < height; ++l) {
            std::string line(indent, ' ');
            for (std::size_t c = 0; c < columns_.size(); ++c) {
                if (c > 0) line.append(gap, ' ');
                append_padded(line, l < lines[c].size() ? lines[c][l] : "", column_widths[c], columns_[c].align);
            }
            end_line(result, line);
        }
    };
    std::vector<std::string> titles;
    for (const Column& column : columns_) titles.push_back(column.title);
    if (std::any_of(titles.begin(), titles.end(), [](const auto& title) { return !title.empty(); })) append_row(titles);
    for (const auto& cells : rows_) append_row(cells);
    return result;
}

}  // namespace headroom
