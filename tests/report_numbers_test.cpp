// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>

#include <numeric>

#include "reports/csv.hpp"
#include "reports/numbers.hpp"

namespace headroom {

TEST_CASE("separators stand at every third digit, behind the sign too") {
    CHECK(with_separators(0) == "0");
    CHECK(with_separators(999) == "999");
    CHECK(with_separators(1000) == "1,000");
    CHECK(with_separators(8'030'261'248) == "8,030,261,248");
    CHECK(with_separators(-100'000) == "-100,000");
    CHECK(with_separators(-999) == "-999");
}

TEST_CASE("tokens take a short form only where it is exact") {
    CHECK(short_tokens({3 * mebi}) == "3M");
    CHECK(short_tokens({mebi + mebi / 4}) == "1.25M");
    CHECK(short_tokens({5 * mebi + mebi / 2}) == "5.5M");
    CHECK(short_tokens({128 * kibi}) == "128K");
    CHECK(short_tokens({mebi + kibi}) == "1025K");
    CHECK(short_tokens({100'000}) == "100,000");
    CHECK(short_tokens({1000}) == "1,000");
    CHECK(short_tokens({0}) == "0");
}

TEST_CASE("an approximate number of tokens never promises more than there are") {
    CHECK(approximate_tokens({5'468'160}) == "5.21M");  // 5.2148...
    CHECK(approximate_tokens({3 * mebi - 1}) == "2.99M");
    CHECK(approximate_tokens({3 * mebi}) == "3M");
    CHECK(approximate_tokens({10 * mebi}) == "10M");
    CHECK(approximate_tokens({434 * kibi + 768}) == "434K");
    CHECK(approximate_tokens({1000}) == "1,000");
    CHECK(approximate_tokens({std::int64_t{1} << 40}) == "1,048,576M");
}

TEST_CASE("logits of 18,750 tokens are 8.96 GiB, not 9.62") {
    // 18750 * 128256 * 4 B = 9,619,200,000 B; a public guide prints 7.64 "GB" for it.
    CHECK(gib({18750LL * 128256 * 4}) == "8.96");
    CHECK(gib({-gibi / 2}) == "-0.50");
    CHECK(gib({4096 * gibi}) == "4,096.00");
}

TEST_CASE("a printed sum adds up") {
    // Thirds: rounded one by one they print 0.33 + 0.33 + 0.33 = 1.00.
    const std::vector<Bytes> thirds{{gibi / 3}, {gibi / 3}, {gibi - 2 * (gibi / 3)}};
    const auto shown = apportion(100, thirds);
    CHECK(std::accumulate(shown.begin(), shown.end(), Centigib{0}) == 100);
    for (const Centigib part : shown) CHECK(part >= 33);
    // A negative margin: 80 - 90.5 = -10.5.
    const auto short_by = apportion(8000, {{90 * gibi + gibi / 2}, {-10 * gibi - gibi / 2}});
    CHECK(short_by == std::vector<Centigib>{9050, -1050});
    CHECK(apportion(0, {}).empty());
}

TEST_CASE("bandwidth is in GB/s of 10^9") {
    CHECK(gigabytes_per_second({3.35e12}) == "3,350");
    CHECK(gigabytes_per_second({12.5e9}) == "12.5");
    CHECK(gigabytes_per_second({0}) == "-");
}

TEST_CASE("durations choose their unit") {
    CHECK(duration({0.0015}) == "1.50 ms");
    CHECK(duration({42.14}) == "42.1 s");
    CHECK(duration({279.4}) == "4 min 39 s");
    CHECK(duration({600}) == "10 min");
    CHECK(duration({7500}) == "2 h 05 min");
}

TEST_CASE("CSV quotes what RFC 4180 asks to quote") {
    CHECK(csv_line({"a", "b c", "1.5"}) == "a,b c,1.5\n");
    CHECK(csv_line({"x,y", "say \"no\"", "two\nlines"}) == "\"x,y\",\"say \"\"no\"\"\",\"two\nlines\"\n");
    CHECK(csv_line({"", "", ""}) == ",,\n");
}

}  // namespace headroom
