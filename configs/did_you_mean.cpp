// SPDX-License-Identifier: Apache-2.0
// Which of the known names was probably meant.
#include <algorithm>
#include <cctype>
#include <numeric>

#include "configs/load.hpp"

namespace headroom {
namespace {

/// Lower case, letters and digits only, and of `organisation/name` the name: Qwen/Qwen3-8B is near qwen3-8b.
std::string core(std::string_view text) {
    if (const auto slash = text.rfind('/'); slash != std::string_view::npos) text.remove_prefix(slash + 1);
    std::string result;
    for (const char c : text) {
        const auto letter = static_cast<unsigned char>(c);
        if (std::isalnum(letter)) result += static_cast<char>(std::tolower(letter));
    }
    return result;
}

/// Levenshtein distance in which swapping two neighbours is one step, too.
std::size_t distance(const std::string& a, const std::string& b) {
    std::vector<std::size_t> before(b.size() + 1), last(b.size() + 1), row(b.size() + 1);
    std::iota(last.begin(), last.end(), std::size_t{0});
    for (std::size_t i = 1; i <= a.size(); ++i) {
        row[0] = i;
        for (std::size_t j = 1; j <= b.size(); ++j) {
            const std::size_t change = last[j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1);
            row[j] = std::min({last[j] + 1, row[j - 1] + 1, change});
            const bool swapped = i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1];
            if (swapped) row[j] = std::min(row[j], before[j - 2] + 1);
        }
        std::swap(before, last);
        std::swap(last, row);
    }
    return last[b.size()];
}

}  // namespace

std::string did_you_mean(std::string_view typed, const std::vector<std::string>& candidates) {
    const std::string wanted = core(typed);
    if (wanted.empty() || wanted.size() > 100) return {};
    std::string best;
    // `h100` means the h100-..., not h200: all names that begin so while they are few, else the shortest; then the
    // shortest that ends so.
    std::vector<std::string> beginning;
    for (const std::string& candidate : candidates) {
        const std::string other = core(candidate);
        if (wanted.size() < 3 || (!other.starts_with(wanted) && !other.ends_with(wanted))) continue;
        if (other.starts_with(wanted)) beginning.push_back(candidate);
        if (best.empty() || candidate.size() < best.size()) best = candidate;
    }
    if (beginning.size() == 2) return beginning[0] + " or " + beginning[1];
    if (beginning.size() == 3) return beginning[0] + ", " + beginning[1] + " or " + beginning[2];
    if (!best.empty()) return best;

    std::size_t best_distance = std::max<std::size_t>(1, wanted.size() / 3) + 1;
    for (const std::string& candidate : candidates) {
        const std::size_t steps = distance(wanted, core(candidate));
        if (steps < best_distance) {
            best = candidate;
            best_distance = steps;
        }
    }
    return best;
}

}  // namespace headroom
