// SPDX-License-Identifier: Apache-2.0
// Numbers as people read them. The one place that decides decimals, separators and unit names.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "models/units.hpp"

namespace headroom {

/// 8030261248 -> "8,030,261,248".
std::string with_separators(std::int64_t number);

/// GiB (2^30 bytes) with two decimals and without the unit, which belongs into the heading: "51.07".
std::string gib(Bytes bytes);

/// GB/s (10^9 bytes a second), as vendors print bandwidth: "3,350", "12.5". "-" for 0.
std::string gigabytes_per_second(BytesPerSecond bandwidth);

/// 1024-based short form where it is exact with two decimals ("3M", "1.25M", "128K"), else the integer.
std::string short_tokens(Tokens tokens);

/// The same for columns and sentences that give the integer too: rounded down to 1/100 M or to 1 K ("5.21M", "434K").
std::string approximate_tokens(Tokens tokens);

/// Four digits, and separators instead of an exponent: "7.182", "472.5", "12,036".
std::string four_digits(double number);

/// "1.50 ms", "42.1 s", "4 min 39 s", "40 min", "2 h 05 min".
std::string duration(Seconds seconds);

/// Hundredths of a GiB, so that a printed sum adds up to the last digit.
using Centigib = std::int64_t;
Centigib in_centigib(Bytes bytes);
std::string centigib(Centigib value);
/// Rounds each part down or up such that together they make `total` (largest remainder first).
std::vector<std::int64_t> apportion_numbers(std::int64_t total, const std::vector<double>& exact);
/// Rounds each part down or up to hundredths such that together they make `total` (largest remainder first).
std::vector<Centigib> apportion(Centigib total, const std::vector<Bytes>& parts);

}  // namespace headroom
