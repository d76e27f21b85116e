// SPDX-License-Identifier: Apache-2.0
// A decimal number as written, kept exact: digits * 10^exponent, and what follows it.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace headroom {

struct Decimal {
    bool negative = false;
    bool leading_zero = false;  ///< `010`: octal to some readers, ten to others
    bool point = false;
    bool scientific = false;
    __int128 digits = 0;
    int exponent = 0;
    std::string_view suffix;  ///< the rest of the text
};

/// Reads the longest number at the start of `text`; `1_000` may group digits. Nothing when there is no digit there
/// or there are more digits than any size needs.
std::optional<Decimal> scan_decimal(std::string_view text);

enum class Scaling { exact, fractional, too_large };
struct Scaled {
    Scaling scaling;
    std::int64_t value;  ///< rounded towards zero when fractional
};

/// The number times `factor` as a signed 64-bit integer.
Scaled scale(const Decimal& decimal, std::int64_t factor);

}  // namespace headroom
