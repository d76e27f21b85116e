// SPDX-License-Identifier: Apache-2.0
#include "configs/decimal.hpp"

#include <limits>

namespace headroom {
namespace {

constexpr int most_digits = 24;  // 2^63 has 19; the product with a factor below 2^43 stays inside 128 bits

bool is_digit(char c) { return c >= '0' && c <= '9'; }

}  // namespace

std::optional<Decimal> scan_decimal(std::string_view text) {
    Decimal number;
    std::size_t at = 0;
    if (at < text.size() && (text[at] == '-' || text[at] == '+')) number.negative = text[at++] == '-';
    const std::size_t first = at;
    int digits = 0;
    for (; at < text.size(); ++at) {
        const char c = text[at];
        const bool digit_follows = at + 1 < text.size() && is_digit(text[at + 1]);
        if (c == '_' && at > first && is_digit(text[at - 1]) && digit_follows) continue;
        if (c == '.' && !number.point && at > first && digit_follows) {
            number.point = true;
            continue;
        }
        if (!is_digit(c)) break;
        if (number.digits > 0 && ++digits >= most_digits) return std::nullopt;
        number.digits = number.digits * 10 + (c - '0');
        if (number.point) --number.exponent;
    }
    if (at == first) return std::nullopt;
    number.leading_zero = text[first] == '0' && at > first + 1 && text[first + 1] != '.';

    if (at < text.size() && (text[at] == 'e' || text[at] == 'E')) {
        std::size_t end = at + 1;
        bool down = false;
        if (end < text.size() && (text[end] == '-' || text[end] == '+')) down = text[end++] == '-';
        if (end < text.size() && is_digit(text[end])) {
            int power = 0;
            for (; end < text.size() && is_digit(text[end]); ++end) {
                if (power < 1000) power = power * 10 + (text[end] - '0');
            }
            number.exponent += down ? -power : power;
            number.scientific = true;
            at = end;
        }
    }
    number.suffix = text.substr(at);
    return number;
}

Scaled scale(const Decimal& decimal, std::int64_t factor) {
    constexpr __int128 largest = std::numeric_limits<std::int64_t>::max();
    __int128 value = 0;
    if (__builtin_mul_overflow(decimal.digits, static_cast<__int128>(factor), &value)) return {Scaling::too_large, 0};
    bool whole = true;
    for (int power = decimal.exponent; power < 0 && value != 0; ++power) {
        whole = whole && value % 10 == 0;
        value /= 10;
    }
    for (int power = decimal.exponent; power > 0 && value != 0; --power) {
        if (value > largest) return {Scaling::too_large, 0};
        value *= 10;
    }
    if (value > largest) return {Scaling::too_large, 0};
    const auto narrow = static_cast<std::int64_t>(decimal.negative ? -value : value);
    return {whole ? Scaling::exact : Scaling::fractional, narrow};
}

}  // namespace headroom
