// SPDX-License-Identifier: Apache-2.0
// The progress line with a clock and a terminal that are not there.
#include <doctest/doctest.h>

#include "reports/progress.hpp"

namespace headroom {

namespace {

struct Desk {
    double now = 100;
    std::string screen;
    int writes = 0;

    Progress progress(std::int64_t total, std::int64_t already = 0) {
        return {"rows", total, already, [this] { return now; },
                [this](std::string_view text) {
                    screen = text;
                    ++writes;
                }};
    }
};

}  // namespace

TEST_CASE("nothing is drawn within the first second") {
    Desk desk;
    Progress progress = desk.progress(1000);
    desk.now += 0.99;
    progress.update(900);
    progress.finish();
    CHECK(desk.writes == 0);
}

TEST_CASE("count, share, rate and time left") {
    Desk desk;
    Progress progress = desk.progress(100'000);
    desk.now += 2;
    progress.update(25'000);
    // 12,500 rows a second; 75,000 are left: 6 s.
    CHECK(desk.screen == "\r25,000 of 100,000 rows (25%), 12,500/s, 6 s left\033[K");
    desk.now += 0.05;
    progress.update(30'000);
    CHECK(desk.writes == 1);  // ten draws a second are enough
    desk.now += 0.95;
    progress.update(30'000);
    CHECK(desk.screen == "\r30,000 of 100,000 rows (30%), 10,000/s, 7 s left\033[K");
    progress.finish();
    CHECK(desk.screen == "\r\033[K");
}

TEST_CASE("rows of an earlier run say nothing about the rate") {
    Desk desk;
    Progress progress = desk.progress(1000, 900);
    desk.now += 10;
    progress.update(910);
    CHECK(desk.screen == "\r910 of 1,000 rows (91%), 1.0/s, 90 s left\033[K");
    CHECK(progress.line(900, 10) == "900 of 1,000 rows (90%)");
}

TEST_CASE("long waits are told in minutes and hours") {
    Desk desk;
    const Progress progress = desk.progress(100'000);
    CHECK(progress.line(1'000, 10) == "1,000 of 100,000 rows (1%), 100/s, 17 min left");
    CHECK(progress.line(100, 10) == "100 of 100,000 rows (0%), 10/s, 2 h 47 min left");
}

}  // namespace headroom
