// SPDX-License-Identifier: Apache-2.0
// Claim: numbers with units are read exactly as written, or refused with the way to write them.
#include <doctest/doctest.h>

#include <string>

#include "configs/load.hpp"
#include "configs/sizes.hpp"
#include "models/error.hpp"
#include "tests/complaint.hpp"
#include "tests/run_headroom.hpp"

using namespace headroom;

namespace {

std::int64_t tokens(const std::string& text) { return parse_tokens(text, "--context").value; }
std::int64_t bytes(const std::string& text) { return parse_bytes(text, "device_memory", "here").value; }
std::string tokens_complaint(const std::string& text) {
    return complaint([&] { tokens(text); });
}
std::string integer_complaint(const std::string& text) {
    return complaint([&] { parse_integer(text, "batch", "--batch"); });
}

}  // namespace

TEST_CASE("tokens count in 1024s and come out exact") {
    CHECK(tokens("1") == 1);
    CHECK(tokens("131072") == 131072);
    CHECK(tokens("128K") == 131072);
    CHECK(tokens("128k") == 131072);
    CHECK(tokens("3M") == 3145728);
    CHECK(tokens("1.5M") == 1572864);
    CHECK(tokens("7.5M") == 7864320);
    CHECK(tokens("1_048_576") == 1048576);
    CHECK(tokens("1e6") == 1000000);
    CHECK(tokens("2.5e3") == 2500);
    CHECK(tokens("1Mi") == 1048576);
    CHECK(tokens("0.5K") == 512);
    CHECK(tokens("9223372036854775807") == 9223372036854775807);  // 2^63 - 1
}

TEST_CASE("what is not a number of tokens is refused with flag and remedy") {
    CHECK(contains(tokens_complaint("128KB"), "tokens are not bytes | --context | write for example 131072, 128K"));
    CHECK(contains(tokens_complaint("12Q"), "'12Q' is not a number of tokens: unknown suffix 'Q' | --context"));
    CHECK(contains(tokens_complaint("-5"), "it must be at least 1"));
    CHECK(contains(tokens_complaint("0"), "it must be at least 1"));
    CHECK(contains(tokens_complaint(""), "a number of tokens is missing | --context"));
    CHECK(contains(tokens_complaint("1.3K"), "it is not whole | --context | nearest are 1331 and 1332"));
    // Lengths that ranks divide.
    CHECK(contains(tokens_complaint("1.1M"), "nearest are 1153024 and 1154048"));
    CHECK(contains(tokens_complaint("9223372036854775808"), "it is too large | --context | it must be below 2^63"));
    CHECK(contains(tokens_complaint("9999999999G"), "it is too large"));
    CHECK(contains(tokens_complaint("1e400"), "it is too large"));
    CHECK(contains(tokens_complaint("010"), "leading zero"));
    CHECK(contains(tokens_complaint("0x10"), "digits are expected"));
    CHECK(contains(tokens_complaint("128 K"), "unknown suffix ' K'"));
    CHECK(contains(tokens_complaint("1__0"), "unknown suffix '__0'"));
    CHECK(contains(tokens_complaint("1,000"), "unknown suffix ',000'"));
    CHECK(contains(tokens_complaint("many"), "digits are expected"));
}

TEST_CASE("bytes are binary with KiB, MiB, GiB and decimal with kB, MB, GB") {
    CHECK(bytes("150109880320") == 150109880320);
    CHECK(bytes("80GiB") == 85899345920);  // 80 * 2^30
    CHECK(bytes("80GB") == 80000000000);
    CHECK(bytes("1.9TB") == 1900000000000);
    CHECK(bytes("80998MiB") == 84932558848);  // 80998 * 2^20
    CHECK(bytes("79.1GiB") == 84932978278);   // 79.1 * 2^30 = 84932978278.4
    CHECK(bytes("0") == 0);
    CHECK(contains(complaint([] { bytes("80G"); }),
                   "device_memory is not a size: '80G' | here | write for example 80GiB"));
    CHECK(contains(complaint([] { bytes("-1GB"); }), "must not be negative"));
    CHECK(contains(complaint([] { bytes("1.5"); }), "must be whole bytes"));
    CHECK(contains(complaint([] { bytes("1e10GB"); }), "is too large"));
}

TEST_CASE("rates are exact where they are whole") {
    CHECK(parse_bandwidth("450GB/s", "x", "").value == 450e9);
    CHECK(parse_bandwidth("2.039TB/s", "x", "").value == 2.039e12);
    CHECK(parse_bandwidth("3.35e12", "x", "").value == 3.35e12);
    CHECK(parse_flops("989.4TFLOPS", "x", "").value == 989.4e12);
    CHECK(parse_flops("2.25PFLOP/s", "x", "").value == 2250e12);
    CHECK(contains(complaint([] { parse_flops("989TB", "peak", "f:1:2"); }), "peak is not a rate: '989TB' | f:1:2"));
    CHECK(contains(complaint([] { parse_bandwidth("-1GB/s", "nic", ""); }), "must not be negative"));
}

TEST_CASE("integers are whole, decimal and never booleans") {
    CHECK(parse_integer("8", "batch", "") == 8);
    CHECK(parse_integer("1e6", "batch", "") == 1000000);
    CHECK(parse_integer("1.5e1", "batch", "") == 15);
    CHECK(parse_integer("-3", "batch", "") == -3);
    CHECK(integer_complaint("010") ==
          "batch must be a whole number, not '010' | --batch | write 10: a leading zero means octal to some readers");
    CHECK(contains(integer_complaint("0x10"), "write it in decimal"));
    CHECK(contains(integer_complaint("true"), "a boolean is not counted as 0 or 1"));
    CHECK(contains(integer_complaint("yes"), "must be a whole number, not 'yes'"));
    CHECK(contains(integer_complaint("4096.0"), "write it without a decimal point"));
    CHECK(contains(integer_complaint("1e-1"), "it has a fraction"));
    CHECK(contains(integer_complaint("1e19"), "it must be below 2^63"));
    CHECK(contains(integer_complaint(""), "write digits only"));
}

TEST_CASE("numbers are decimal and finite") {
    CHECK(parse_number("0.95", "share", "") == 0.95);
    CHECK(parse_number("1e-05", "share", "") == 1e-5);
    CHECK(parse_number("500000.0", "share", "") == 500000.0);
    CHECK(contains(complaint([] { parse_number("nan", "share", ""); }), "share must be a number, not 'nan'"));
    CHECK(contains(complaint([] { parse_number("1e999", "share", ""); }), "must be a number"));
    CHECK(contains(complaint([] { parse_number("010", "share", ""); }), "write 10"));
    CHECK(contains(complaint([] { parse_number("0.5x", "share", ""); }), "must be a number"));
}

TEST_CASE("did you mean") {
    const std::vector<std::string> models{"llama3-8b", "llama3-70b", "qwen3-8b", "qwen3-32b"};
    CHECK(did_you_mean("llama3-8", models) == "llama3-8b");
    CHECK(did_you_mean("lama3-8b", models) == "llama3-8b");
    CHECK(did_you_mean("Qwen/Qwen3-8B", models) == "qwen3-8b");
    CHECK(did_you_mean("llama-3-70b", models) == "llama3-70b");
    CHECK(did_you_mean("chicken", models).empty());
    CHECK(did_you_mean("h100", builtin_clusters()) == "h100-pcie-80gb or h100-sxm-80gb");
    CHECK(did_you_mean("block_inputs", {"offload.block_inputs", "batch"}) == "offload.block_inputs");
}
