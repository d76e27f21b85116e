// SPDX-License-Identifier: Apache-2.0
#include "reports/numbers.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <numeric>

namespace headroom {

namespace {

/// `tokens / unit` with up to two decimals and no trailing zeros; empty when that is not exact.
std::string exact_multiple(std::int64_t tokens, std::int64_t unit, char suffix) {
    if (tokens % unit == 0) return fmt::format("{}{}", tokens / unit, suffix);
    // unit = 4 * 25 * (unit / 100) has no integer hundredth; k / 100 is exact only for quarters of a power of two.
    if (tokens % (unit / 4) != 0) return {};
    std::string text = fmt::format("{:.2f}", static_cast<double>(tokens) / static_cast<double>(unit));
    if (text.back() == '0') text.pop_back();
    return text + suffix;
}

}  // namespace

std::string with_separators(std::int64_t number) {
    std::string digits = fmt::format("{}", number);
    const std::size_t first = number < 0 ? 1 : 0;
    for (std::size_t at = digits.size(); at > first + 3; at -= 3) digits.insert(at - 3, ",");
    return digits;
}

std::string gib(Bytes bytes) { return centigib(in_centigib(bytes)); }

std::string gigabytes_per_second(BytesPerSecond bandwidth) {
    if (bandwidth.value <= 0) return "-";
    const double value = bandwidth.value / 1e9;
    if (value >= 1000) return with_separators(std::llround(value));
    return fmt::format("{:.4g}", value);
}

std::string short_tokens(Tokens tokens) {
    std::string text;
    if (tokens.value >= mebi) text = exact_multiple(tokens.value, mebi, 'M');
    if (text.empty() && tokens.value >= kibi) text = exact_multiple(tokens.value, kibi, 'K');
    return text.empty() ? with_separators(tokens.value) : text;
}

std::string approximate_tokens(Tokens tokens) {
    if (tokens.value < kibi) return with_separators(tokens.value);
    if (tokens.value < mebi) return fmt::format("{}K", tokens.value / kibi);
    const std::int64_t hundredths = tokens.value / mebi * 100 + tokens.value % mebi * 100 / mebi;
    std::string text = centigib(hundredths);
    while (text.back() == '0') text.pop_back();
    if (text.back() == '.') text.pop_back();
    return text + "M";
}

std::string four_digits(double number) {
    if (std::abs(number) >= 999.95) return with_separators(std::llround(number));
    return fmt::format("{:.4g}", number);
}

std::string duration(Seconds seconds) {
    const double value = seconds.value;
    if (value < 1e-3) return fmt::format("{:.1f} us", value * 1e6);
    if (value < 1) return fmt::format("{:.2f} ms", value * 1e3);
    if (value < 120) return fmt::format("{:.1f} s", value);
    if (value < 599.5) {
        const std::int64_t whole = std::llround(value);
        return fmt::format("{} min {:02} s", whole / 60, whole % 60);
    }
    const std::int64_t minutes = std::llround(value / 60);
    if (minutes < 60) return fmt::format("{} min", minutes);
    return fmt::format("{} h {:02} min", minutes / 60, minutes % 60);
}

Centigib in_centigib(Bytes bytes) { return std::llround(in_gib(bytes) * 100); }

std::string centigib(Centigib value) {
    const std::int64_t magnitude = std::abs(value);
    return fmt::format("{}{}.{:02}", value < 0 ? "-" : "", with_separators(magnitude / 100), magnitude % 100);
}

std::vector<std::int64_t> apportion_numbers(std::int64_t total, const std::vector<double>& exact) {
    std::vector<std::int64_t> rounded(exact.size());
    std::vector<double> remainder(exact.size());
    for (std::size_t i = 0; i < exact.size(); ++i) {
        rounded[i] = static_cast<std::int64_t>(std::floor(exact[i]));
        remainder[i] = exact[i] - std::floor(exact[i]);
    }
    std::vector<std::size_t> order(exact.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::stable_sort(order.begin(), order.end(),
                     [&](std::size_t a, std::size_t b) { return remainder[a] > remainder[b]; });
    std::int64_t missing = total - std::accumulate(rounded.begin(), rounded.end(), std::int64_t{0});
    for (std::size_t i = 0; i < order.size() && missing > 0; ++i, --missing) ++rounded[order[i]];
    return rounded;
}

std::vector<Centigib> apportion(Centigib total, const std::vector<Bytes>& parts) {
    std::vector<double> exact;
    for (const Bytes part : parts) exact.push_back(in_gib(part) * 100);
    return apportion_numbers(total, exact);
}

}  // namespace headroom
