// SPDX-License-Identifier: Apache-2.0
// What helps when something does not fit: the change to make, the tensor that was too much, where the peak went.
#include <doctest/doctest.h>

#include <algorithm>
#include "tests/json_of.hpp"
#include "tests/run_headroom.hpp"

namespace headroom {

namespace {

using Words = std::vector<std::string>;
using Json = nlohmann::ordered_json;

Outcome run(const Words& words) {
    const Outcome outcome = run_headroom(words);
    CAPTURE(outcome.err);
    REQUIRE(outcome.status == 0);
    for (const std::string& line : lines_of(outcome.out)) {
        CAPTURE(line);
        CHECK(line.size() <= 80);
    }
    return outcome;
}

/// One line, single spaces.
std::string unwrapped(const std::string& text) {
    std::string line;
    for (const char c : text) {
        const bool space = c == ' ' || c == '\n';
        if (!space || (!line.empty() && line.back() != ' ')) line += space ? ' ' : c;
    }
    return line;
}

/// The flags of "Cheapest change that makes it fit: --set ... (".
Words cheapest_flags(const std::string& out) {
    const std::string line = unwrapped(out);
    const std::string begin = "Cheapest change that makes it fit: ";
    const std::size_t start = line.find(begin);
    if (start == std::string::npos) return {};
    const std::size_t first = start + begin.size();
    Words flags;
    std::string rest = line.substr(first, line.find(" (", first) - first) + " ";
    for (std::size_t at = 0, end = 0; (end = rest.find(' ', at)) != std::string::npos; at = end + 1) {
        flags.push_back(rest.substr(at, end - at));
    }
    return flags;
}

}  // namespace

TEST_CASE("a plan that does not fit names the cheapest change, which then fits, and where to ask for more") {
    for (const Words& words :
         {Words{"plan", "--method", "ulysses", "--context", "3900000"},
          Words{"plan", "--method", "upipe", "--context", "512K", "--set", "offload.block_inputs=none", "--set",
                "offload.optimizer=false", "--model", "llama3-70b"},
          Words{"plan", "--context", "2M", "--set", "offload.block_inputs=none"}, Words{"plan", "--context", "8M"}}) {
        CAPTURE(words);
        REQUIRE(json_of(words)["fits"] == false);
        const std::string out = run(words).out;
        CHECK(contains(unwrapped(out), "`headroom recommend"));
        const Words flags = cheapest_flags(out);
        if (flags.empty()) {
            CHECK(contains(unwrapped(out), "No change of settings alone makes it fit"));
            continue;
        }
        // What the change sets is not said twice.
        Words changed;
        for (std::size_t i = 0; i < words.size(); ++i) {
            const bool replaced = words[i] == "--set" && std::any_of(flags.begin(), flags.end(), [&](const auto& flag) {
                                      return flag.starts_with(words[i + 1].substr(0, words[i + 1].find('=') + 1));
                                  });
            if (replaced) {
                ++i;
            } else {
                changed.push_back(words[i]);
            }
        }
        changed.insert(changed.end(), flags.begin(), flags.end());
        CHECK(json_of(changed)["fits"] == true);
    }
}

TEST_CASE("Ulysses at 3.9M: states on the host, as fast") {
    const std::string out = unwrapped(run({"plan", "--method", "ulysses", "--context", "3900000"}).out);
    CHECK(contains(out, "--set offload.optimizer=true --set offload.parameters=true (as fast, "));
    CHECK(contains(out, "`headroom recommend --context 3900000` searches all methods."));
    CHECK(!contains(unwrapped(run({"plan", "--context", "1M"}).out), "Cheapest change"));
    // No setting more than it takes.
    CHECK(cheapest_flags(run({"plan", "--context", "2M", "--set", "offload.block_inputs=none"}).out) ==
          Words{"--set", "offload.block_inputs=pinned"});
}

TEST_CASE("sensitivity of what does not fit: that it does not comes first, then what helps") {
    const std::string out = run({"what-if", "--method", "ulysses", "--context", "3900000", "--sensitivity"}).out;
    CHECK(out.starts_with("The base does not fit: "));
    const std::size_t helps = out.find("offload.optimizer=true"), hurts = out.find("offload.block_inputs=none");
    REQUIRE(helps != std::string::npos);
    REQUIRE(hurts != std::string::npos);
    CHECK(helps < hurts);
    CHECK(!contains(run({"what-if", "--context", "1M", "--sensitivity"}).out, "The base does not fit"));
}

TEST_CASE("which tensor: all of them when asked for, as JSON too") {
    const Words words{"plan", "--method", "ulysses", "--context", "1M", "--which-tensor", "1.00GiB"};
    CHECK(contains(run(words).out, "and 21 more, which --all shows"));
    Words all = words;
    all.emplace_back("--all");
    const std::string whole = run(all).out;
    CHECK(!contains(whole, "more, which"));
    const Json tensors = json_of(words)["which_tensor"]["tensors"];
    CHECK(tensors.size() == 33);
    for (const Json& tensor : tensors) {
        CHECK(tensor["bytes"].get<std::int64_t>() > 1'060'000'000);
        CHECK(contains(unwrapped(whole), tensor["name"].get<std::string>()));
    }
    CHECK(run_headroom({"plan", "--context", "1M", "--all"}).status == 2);
}

TEST_CASE("which tensor: on a miss the nearest, and no reading that cannot be") {
    const Words words{"plan", "--method", "ulysses", "--context", "1M", "--which-tensor"};
    const auto ask = [&](const char* size) {
        Words asked = words;
        asked.emplace_back(size);
        return asked;
    };
    const std::string near = run(ask("1.05GiB")).out;
    CHECK(contains(near, "None of this step"));
    CHECK(contains(near, "the nearest"));
    const Json found = json_of(ask("1.05GiB"))["which_tensor"];
    CHECK(found["tensors"].empty());
    REQUIRE(found["nearest"].size() == 2);
    CHECK(found["nearest"][0]["bytes"] < found["nearest"][1]["bytes"]);
    const std::string huge = run(ask("500GiB")).out;
    CHECK(contains(huge, "More than the whole GPU has"));
    CHECK(!contains(huge, "or rows of"));
}

TEST_CASE("what-if says that the peak moved within a phase, and not that it moved with the number of blocks") {
    const std::string moved = unwrapped(run({"what-if", "--method", "upipe", "--context", "512K", "--change",
                                             "heads_per_stage=16", "--change", "heads_per_stage=32"})
                                            .out);
    CHECK(contains(moved, "(1) the peak moved: from MLP in backward, block 1 of 32 to attention in backward"));
    CHECK(contains(moved, "(2) the peak moved"));
    const std::string other =
        run({"what-if", "--model", "llama3-8b", "--context", "1M", "--change", "model=qwen3-8b"}).out;
    CHECK(!contains(other, "the peak moved"));
}

}  // namespace headroom
