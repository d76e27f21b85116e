// SPDX-License-Identifier: Apache-2.0
#include "configs/sizes.hpp"

#include <fmt/format.h>

#include <array>
#include <charconv>
#include <cmath>
#include <span>

#include "configs/decimal.hpp"
#include "configs/load.hpp"
#include "models/error.hpp"

namespace headroom {
namespace {

struct Suffix {
    std::string_view text;
    std::int64_t factor;
};

constexpr std::int64_t tebi = 1024 * gibi;
constexpr std::int64_t thousand = 1000, million = 1'000'000, billion = 1'000'000'000, trillion = 1'000'000'000'000;

// As model cards write contexts: 128K is 131072.
constexpr std::array token_suffixes{Suffix{"", 1},      Suffix{"K", kibi}, Suffix{"k", kibi},
                                    Suffix{"Ki", kibi}, Suffix{"M", mebi}, Suffix{"Mi", mebi},
                                    Suffix{"m", mebi},  Suffix{"G", gibi}, Suffix{"Gi", gibi}};
constexpr std::array byte_suffixes{Suffix{"", 1},          Suffix{"B", 1},         Suffix{"KiB", kibi},
                                   Suffix{"MiB", mebi},    Suffix{"GiB", gibi},    Suffix{"TiB", tebi},
                                   Suffix{"kB", thousand}, Suffix{"KB", thousand}, Suffix{"MB", million},
                                   Suffix{"GB", billion},  Suffix{"TB", trillion}};
constexpr std::array flop_suffixes{Suffix{"", 1},
                                   Suffix{"GFLOPS", billion},
                                   Suffix{"TFLOPS", trillion},
                                   Suffix{"PFLOPS", thousand* trillion},
                                   Suffix{"GFLOP/s", billion},
                                   Suffix{"TFLOP/s", trillion},
                                   Suffix{"PFLOP/s", thousand* trillion}};

const Suffix* find_suffix(std::span<const Suffix> suffixes, std::string_view text) {
    for (const Suffix& suffix : suffixes) {
        if (suffix.text == text) return &suffix;
    }
    return nullptr;
}

std::string without_leading_zeros(std::string_view text) {
    const std::size_t first = text.find_first_not_of("0_");
    return std::string(first == std::string_view::npos ? std::string_view("0") : text.substr(first));
}

bool is_hexadecimal(std::string_view text) {
    return text.size() > 2 && text[0] == '0' && (text[1] == 'x' || text[1] == 'X');
}

double as_double(const Decimal& number) {
    const double size = static_cast<double>(number.digits) * std::pow(10.0, number.exponent);
    return number.negative ? -size : size;
}

double parse_rate(std::string_view text, std::span<const Suffix> suffixes, const std::string& name,
                  const std::string& where, const std::string& hint) {
    const auto number = scan_decimal(text);
    const Suffix* suffix = number ? find_suffix(suffixes, number->suffix) : nullptr;
    if (!suffix || number->leading_zero) throw Error(fmt::format("{} is not a rate: '{}'", name, text), where, hint);
    // 989.4T is a whole number; through doubles it would be off by one in the last place.
    const Scaled scaled = scale(*number, suffix->factor);
    const double rate = scaled.scaling == Scaling::exact ? static_cast<double>(scaled.value)
                                                         : as_double(*number) * static_cast<double>(suffix->factor);
    if (!(rate >= 0) || !std::isfinite(rate)) {
        throw Error(fmt::format("{} must not be negative or endless, not {}", name, text), where, hint);
    }
    return rate;
}

}  // namespace

std::int64_t parse_integer(std::string_view text, const std::string& name, const std::string& where) {
    const auto refuse = [&](const std::string& hint) {
        return Error(fmt::format("{} must be a whole number, not '{}'", name, text), where, hint);
    };
    const auto number = scan_decimal(text);
    if (is_hexadecimal(text)) throw refuse("write it in decimal");
    if (!number || !number->suffix.empty()) {
        if (text == "true" || text == "false") throw refuse("a boolean is not counted as 0 or 1; write the number");
        throw refuse("write digits only, for example 8");
    }
    if (number->leading_zero) {
        throw refuse(fmt::format("write {}: a leading zero means octal to some readers", without_leading_zeros(text)));
    }
    if (number->point && !number->scientific) throw refuse("write it without a decimal point");
    const Scaled scaled = scale(*number, 1);
    if (scaled.scaling == Scaling::too_large) throw refuse("it must be below 2^63");
    if (scaled.scaling == Scaling::fractional) throw refuse("it has a fraction");
    return scaled.value;
}

double parse_number(std::string_view text, const std::string& name, const std::string& where) {
    const auto refuse = [&](const std::string& hint) {
        return Error(fmt::format("{} must be a number, not '{}'", name, text), where, hint);
    };
    const auto number = scan_decimal(text);
    if (is_hexadecimal(text)) throw refuse("write it in decimal");
    if (number && number->leading_zero) {
        throw refuse(fmt::format("write {}: a leading zero means octal to some readers", without_leading_zeros(text)));
    }
    // from_chars rounds correctly and knows no locale, but no underscores either.
    std::string digits;
    for (const char c : text) {
        if (c != '_') digits += c;
    }
    double value = 0;
    const auto [end, problem] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
    const bool complete = problem == std::errc() && end == digits.data() + digits.size();
    if (complete && std::isfinite(value) && (!number || number->suffix.empty())) return value;
    throw refuse("for example 0.95 or 1e-5");
}

Bytes parse_bytes(std::string_view text, const std::string& name, const std::string& where) {
    const std::string hint = "write for example 80GiB (1024-based) or 1.9TB (1000-based)";
    const auto number = scan_decimal(text);
    const Suffix* suffix = number ? find_suffix(byte_suffixes, number->suffix) : nullptr;
    if (!suffix || number->leading_zero) throw Error(fmt::format("{} is not a size: '{}'", name, text), where, hint);
    if (number->negative) throw Error(fmt::format("{} must not be negative, not {}", name, text), where, hint);
    const Scaled scaled = scale(*number, suffix->factor);
    if (scaled.scaling == Scaling::too_large) {
        throw Error(fmt::format("{} is too large: '{}'", name, text), where, "it must be below 2^63 bytes");
    }
    if (scaled.scaling == Scaling::fractional && suffix->factor == 1) {
        throw Error(fmt::format("{} must be whole bytes, not '{}'", name, text), where, hint);
    }
    return {scaled.value};  // 79.1GiB is no whole number of bytes; the fraction of one is dropped
}

BytesPerSecond parse_bandwidth(std::string_view text, const std::string& name, const std::string& where) {
    std::string_view rate = text;
    if (rate.ends_with("/s")) rate.remove_suffix(2);
    return {parse_rate(rate, byte_suffixes, name, where, "write for example 450GB/s, or bytes per second as 450e9")};
}

FlopsPerSecond parse_flops(std::string_view text, const std::string& name, const std::string& where) {
    return {parse_rate(text, flop_suffixes, name, where, "write for example 989.4TFLOPS, or a number as 989.4e12")};
}

Tokens parse_tokens(std::string_view text, const std::string& where) {
    const std::string examples = "write for example 131072, 128K or 1M (K = 1024, M = 1024 * 1024 tokens)";
    if (text.empty()) throw Error("a number of tokens is missing", where, examples);
    const auto refuse = [&](const std::string& why, const std::string& hint) {
        return Error(fmt::format("'{}' is not a number of tokens: {}", text, why), where, hint);
    };
    const auto number = scan_decimal(text);
    if (!number || is_hexadecimal(text)) throw refuse("digits are expected", examples);
    const Suffix* suffix = find_suffix(token_suffixes, number->suffix);
    if (!suffix && (number->suffix.ends_with('B') || number->suffix.ends_with('b'))) {
        throw refuse("tokens are not bytes", examples);
    }
    if (!suffix) throw refuse(fmt::format("unknown suffix '{}'", number->suffix), examples);
    if (number->leading_zero) throw refuse("a leading zero means octal to some readers", "write it without the zero");
    const Scaled scaled = scale(*number, suffix->factor);
    if (scaled.scaling == Scaling::too_large) throw refuse("it is too large", "it must be below 2^63");
    if (scaled.scaling == Scaling::fractional) {
        // What ranks and tiles divide by, not just the next whole number.
        const std::int64_t step = scaled.value >= 64 * kibi ? kibi : 1;
        const std::int64_t below = scaled.value / step * step;
        throw refuse("it is not whole", fmt::format("nearest are {} and {}", below, below + step));
    }
    if (scaled.value < 1) throw refuse("it must be at least 1", examples);
    return {scaled.value};
}

}  // namespace headroom
