// SPDX-License-Identifier: Apache-2.0
#include <doctest/doctest.h>

#include <cmath>

#include "calibrate/statistics.hpp"

using namespace headroom;

TEST_CASE("median, MAD and quantiles of a series worked by hand") {
    // sorted 1 2 4 8 100: median 4; distances 3 2 0 4 96, sorted 0 2 3 4 96: MAD 3
    const Summary summary = summarise({8, 1, 100, 2, 4});
    CHECK(summary.median == 4);
    CHECK(summary.mad == 3);
    CHECK(summary.p10 == doctest::Approx(1.4));   // 0.4 of the way from 1 to 2
    CHECK(summary.p90 == doctest::Approx(63.2));  // 0.6 of the way from 8 to 100
    CHECK(summary.samples == 5);
    CHECK(summary.relative_mad() == doctest::Approx(0.75));
    CHECK(quantile({1, 2}, 0.5) == 1.5);
    CHECK(summarise({}).samples == 0);
}

TEST_CASE("a series ends by the rule it meets first, and the rule has a name") {
    const StoppingRule rule{5, 10, 0.01, 0, 2};
    Stop why{};
    CHECK_FALSE(done(rule, {1, 1, 1, 1}, 0.5, why));  // too few
    CHECK(done(rule, {1, 1, 1, 1, 1}, 0.5, why));
    CHECK(to_string(why) == "converged");
    CHECK_FALSE(done(rule, {1, 2, 3, 4, 5}, 0.5, why));  // MAD 1 of 3
    CHECK(done(rule, {1, 2, 3, 4, 5, 1, 2, 3, 4, 5}, 0.5, why));
    CHECK(to_string(why) == "sample limit");
    CHECK(done(rule, {3}, 2.5, why));  // slower than planned: one sample has to do
    CHECK(to_string(why) == "time limit");
    CHECK_FALSE(done(rule, {}, 100, why));  // but one there must be
}

TEST_CASE("a sustained probe goes on although its samples agree") {
    const StoppingRule rule{3, 10, 0.01, 1.0, 2};
    Stop why{};
    CHECK_FALSE(done(rule, std::vector<double>(20, 1.0), 0.9, why));
    CHECK(done(rule, {1, 1, 1}, 1.0, why));
}
