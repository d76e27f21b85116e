// SPDX-License-Identifier: Apache-2.0
// Every output that the README shows is what the program prints: its lines stand in that order, "..." leaves some out.
#include <doctest/doctest.h>

#include "tests/run_headroom.hpp"

namespace headroom {

namespace {

struct Shown {
    std::string command;
    std::vector<std::string> lines;
};

/// Commands of the indented blocks that output follows.
std::vector<Shown> shown_in(const std::string& text) {
    std::vector<Shown> all;
    bool inside = false;
    for (const std::string& line : lines_of(text)) {
        if (line.starts_with("    $ ")) {
            all.push_back({line.substr(6), {}});
            inside = true;
        } else if (line.starts_with("    ") && inside) {
            if (line != "    ...") all.back().lines.push_back(line.substr(4));
        } else if (!line.empty()) {
            inside = false;
        }
    }
    std::erase_if(all, [](const Shown& shown) { return shown.lines.empty(); });
    return all;
}

}  // namespace

TEST_CASE("the README shows what the program prints") {
    const std::vector<Shown> all = shown_in(read_file(HEADROOM_README));
    CHECK(all.size() >= 4);
    for (const Shown& shown : all) {
        CAPTURE(shown.command);
        const Outcome outcome = run_shell("headroom() { \"$HEADROOM\" \"$@\"; }; " + shown.command);
        REQUIRE(outcome.status == 0);
        const std::vector<std::string> printed = lines_of(outcome.out);
        std::size_t at = 0;
        for (const std::string& line : shown.lines) {
            CAPTURE(line);
            while (at < printed.size() && printed[at] != line) ++at;
            REQUIRE(at < printed.size());
            ++at;
        }
    }
}

}  // namespace headroom
