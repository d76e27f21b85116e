// SPDX-License-Identifier: Apache-2.0
#include "configs/builtin_data.hpp"

#include <algorithm>
#include <cctype>

namespace headroom {
namespace {

/// `models/phi-4.json` in folder `models` is `phi-4`; empty for files of other folders.
std::string_view name_in(std::string_view folder, std::string_view path) {
    if (!path.starts_with(folder) || path.size() <= folder.size() || path[folder.size()] != '/') return {};
    path.remove_prefix(folder.size() + 1);
    return path.substr(0, path.rfind('.'));
}

bool is_digit(char c) { return std::isdigit(static_cast<unsigned char>(c)) != 0; }

/// Compares runs of digits as numbers.
bool natural_less(std::string_view a, std::string_view b) {
    std::size_t i = 0, j = 0;
    while (i < a.size() && j < b.size()) {
        if (is_digit(a[i]) && is_digit(b[j])) {
            const std::size_t first_i = i, first_j = j;
            while (i < a.size() && is_digit(a[i])) ++i;
            while (j < b.size() && is_digit(b[j])) ++j;
            const std::string_view left = a.substr(first_i, i - first_i), right = b.substr(first_j, j - first_j);
            if (left.size() != right.size()) return left.size() < right.size();
            if (left != right) return left < right;
            continue;
        }
        if (a[i] != b[j]) return a[i] < b[j];
        ++i;
        ++j;
    }
    return a.size() - i < b.size() - j;
}

}  // namespace

std::optional<std::string_view> builtin_text(std::string_view folder, std::string_view name) {
    if (name.empty()) return std::nullopt;
    for (const BuiltinFile& file : builtin_files()) {
        if (name_in(folder, file.path) == name) return file.text;
    }
    return std::nullopt;
}

std::vector<std::string> builtin_names(std::string_view folder) {
    std::vector<std::string> names;
    for (const BuiltinFile& file : builtin_files()) {
        const std::string_view name = name_in(folder, file.path);
        if (!name.empty()) names.emplace_back(name);
    }
    std::sort(names.begin(), names.end(), natural_less);
    return names;
}

}  // namespace headroom
