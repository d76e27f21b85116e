// SPDX-License-Identifier: Apache-2.0
// Numbers as people write them: `131072`, `128K`, `1e6`, `79.1GiB`, `450GB/s`. Exact, and never octal by accident.
// `where` is the flag or the place in a file; every function throws Error when the text is not what it reads.
// Tokens are read by parse_tokens (load.hpp).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "models/units.hpp"

namespace headroom {

/// `name` is what the number is for, and begins the sentence: "batch must be a whole number, not '010'".
std::int64_t parse_integer(std::string_view text, const std::string& name, const std::string& where);
double parse_number(std::string_view text, const std::string& name, const std::string& where);

/// `80GiB` and `1.9TB`: KiB, MiB, GiB, TiB count in 1024s, kB, MB, GB, TB in 1000s; without a suffix, bytes.
Bytes parse_bytes(std::string_view text, const std::string& name, const std::string& where);
/// The same per second: `450GB/s`, or a plain number.
BytesPerSecond parse_bandwidth(std::string_view text, const std::string& name, const std::string& where);
/// `989.4TFLOPS`, or a plain number.
FlopsPerSecond parse_flops(std::string_view text, const std::string& name, const std::string& where);

}  // namespace headroom
