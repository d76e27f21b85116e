// SPDX-License-Identifier: Apache-2.0
// Quantities that carry their unit in the type, so that tokens never add to bytes.
#pragma once

#include <bit>
#include <compare>
#include <cstdint>

namespace headroom {

/// A number with a unit. Quantities of one unit add and compare; scaling by a plain number keeps the unit.
template <class Unit, class Number>
struct Quantity {
    Number value = 0;

    constexpr auto operator<=>(const Quantity&) const = default;
    constexpr Quantity operator-() const { return {-value}; }
    constexpr Quantity& operator+=(Quantity other) {
        value += other.value;
        return *this;
    }
    constexpr Quantity& operator-=(Quantity other) {
        value -= other.value;
        return *this;
    }
    friend constexpr Quantity operator+(Quantity a, Quantity b) { return {a.value + b.value}; }
    friend constexpr Quantity operator-(Quantity a, Quantity b) { return {a.value - b.value}; }
    friend constexpr Quantity operator*(Quantity a, Number factor) { return {a.value * factor}; }
    friend constexpr Quantity operator*(Number factor, Quantity a) { return {factor * a.value}; }
    friend constexpr Quantity operator/(Quantity a, Number divisor) { return {a.value / divisor}; }
};

using Bytes = Quantity<struct BytesUnit, std::int64_t>;
using Tokens = Quantity<struct TokensUnit, std::int64_t>;
using Seconds = Quantity<struct SecondsUnit, double>;
using BytesPerSecond = Quantity<struct BytesPerSecondUnit, double>;
using FlopsPerSecond = Quantity<struct FlopsPerSecondUnit, double>;

inline constexpr std::int64_t kibi = 1024;
inline constexpr std::int64_t mebi = 1024 * kibi;
inline constexpr std::int64_t gibi = 1024 * mebi;

/// For reading and tests: bytes as GiB (2^30).
constexpr double in_gib(Bytes bytes) { return static_cast<double>(bytes.value) / static_cast<double>(gibi); }

constexpr std::int64_t divide_round_up(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }

constexpr std::int64_t round_up(std::int64_t a, std::int64_t multiple) {
    return divide_round_up(a, multiple) * multiple;
}

/// Smallest power of two that is not below `a` (a >= 1).
constexpr std::int64_t next_power_of_two(std::int64_t a) {
    return static_cast<std::int64_t>(std::bit_ceil(static_cast<std::uint64_t>(a)));
}

}  // namespace headroom
