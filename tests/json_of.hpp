// SPDX-License-Identifier: Apache-2.0
// What a command says with --format json.
#pragma once

#include <doctest/doctest.h>

#include <nlohmann/json.hpp>

#include "tests/run_headroom.hpp"

namespace headroom {

inline nlohmann::ordered_json json_of(std::vector<std::string> words) {
    words.insert(words.end(), {"--format", "json"});
    const Outcome outcome = run_headroom(words);
    CAPTURE(outcome.err);
    REQUIRE(outcome.status == 0);
    return nlohmann::ordered_json::parse(outcome.out);
}

}  // namespace headroom
