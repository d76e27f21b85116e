// SPDX-License-Identifier: Apache-2.0
// Lean schedules as they ran on two H200, beside the predictions of today.
#include <doctest/doctest.h>

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <vector>

#include "calibrate/run/compare.hpp"
#include "configs/calibration.hpp"
#include "tests/run_headroom.hpp"

namespace headroom {

namespace {

std::string measurements() { return std::string(HEADROOM_PROBES) + "/../"; }
std::string runs() { return measurements() + "h200x2-lean-runs-2026-11-30.jsonl"; }

/// Records of a file beside the predictions with these constants: the largest errors.
struct Worst {
    int cases = 0;
    double bytes = 0, seconds = 0;
};
Worst worst_of(const std::string& file, const Calibration& calibration) {
    Worst worst;
    for (const Json& record : read_run_file(measurements() + file + "-2026-11-30.jsonl")) {
        REQUIRE(record.at("status") == "ok");
        const Json again = predicted_again(record, calibration);
        ++worst.cases;
        worst.bytes = std::max(worst.bytes, std::abs(again["memory"]["error"].get<double>()));
        worst.seconds = std::max(worst.seconds, std::abs(again["time"]["error"].get<double>()));
    }
    MESSAGE(fmt::format("{}: {} runs, peaks within {:.6f} %, times within {:.1f} %", file, worst.cases,
                        100 * worst.bytes, 100 * worst.seconds));
    return worst;
}

/// Constants from the probes of one call alone.
Calibration fitted(const std::string& probes) {
    const TemporaryDirectory directory;
    const std::string path = directory.path("fitted.yaml");
    REQUIRE(run_headroom({"calibrate", "fit", measurements() + "probes/" + probes + "-2026-11-30.jsonl", "--base",
                          "h200", "-o", path})
                .status == 0);
    return load_calibration(path);
}

}  // namespace

TEST_CASE("executed steps peak where predicted and take what constants from the probes of another call say") {
    struct Pair {
        const char *runs, *probes;
        int cases;
    };
    for (const Pair& pair : {Pair{"h200x2-lean-runs", "h200-x2-mix-again", 12},
                             {"h200x2-lean-runs-again", "h200-x2-mix", 17},
                             {"h200x1-lean-runs", "h200-x2-mix", 9}}) {
        const Worst worst = worst_of(pair.runs, fitted(pair.probes));
        CHECK(worst.cases == pair.cases);
        CHECK(worst.bytes < 0.0001);
        CHECK(worst.seconds < 0.03);
    }
}

TEST_CASE("with the derived constants of a node of eight the same steps come out within 5 %") {
    for (const char* file : {"h200x2-lean-runs", "h200x2-lean-runs-again", "h200x1-lean-runs"}) {
        CHECK(worst_of(file, load_calibration("h200")).seconds < 0.05);
    }
}

TEST_CASE("every method trains: losses fall, and are the same for all methods at one length but for UPipe's order") {
    for (const char* file : {"h200x2-lean-runs", "h200x2-lean-runs-again", "h200x1-lean-runs"}) {
        std::map<std::string, double> first;  // by model and context, of all methods that keep the order of heads
        for (const Json& record : read_run_file(measurements() + file + "-2026-11-30.jsonl")) {
            CAPTURE(record.at("name").get<std::string>());
            const auto losses = record.at("loss").get<std::vector<double>>();
            REQUIRE(losses.size() > 1);
            CHECK(losses.back() < losses.front() - 1);
            // Logits of normal weights add half their variance to log(vocabulary).
            CHECK(losses.front() == doctest::Approx(12.7).epsilon(0.03));
            if (record.at("recipe").at("method") == "upipe") continue;
            const std::string key = record.at("model").get<std::string>() + record.at("layers").dump() +
                                    record.at("recipe").at("context").get<std::string>();
            const auto [found, is_new] = first.emplace(key, losses.front());
            if (!is_new) CHECK(losses.front() == doctest::Approx(found->second).epsilon(1e-4));
        }
    }
}

TEST_CASE("methods keep their order: what runs faster was predicted to") {
    const Calibration calibration = load_calibration("h200-x2");
    // FPDT's and the ring's full-mask blocks are the fastest at 512K, UPipe's stages cost a little more than Ulysses.
    std::vector<std::pair<double, double>> times;  // predicted, measured
    for (const Json& record : read_run_file(runs())) {
        if (record.at("recipe").at("context") != "524288") continue;
        const Json again = predicted_again(record, calibration);
        times.emplace_back(again["time"]["predicted_seconds"], again["time"]["measured_seconds"]);
    }
    REQUIRE(times.size() == 4);
    std::sort(times.begin(), times.end());
    CHECK(std::is_sorted(times.begin(), times.end(), [](const auto& a, const auto& b) { return a.second < b.second; }));
}

TEST_CASE("a file of runs is read line by line, and compared from the command line") {
    const Outcome outcome = run_headroom({"calibrate", "run", "--compare", runs(), "--calibration", "h200"});
    CHECK(outcome.status == 0);
    CHECK(contains(outcome.out, "upipe 512K U 8, 2x1"));
    CHECK(contains(outcome.out, "0.00%"));
    for (const char* flag : {"--compare", "--calibration"}) {
        CHECK(run_headroom({"calibrate", "run", "--compare", runs(), flag, "/nowhere"}).status != 0);
    }
    const TemporaryDirectory directory;
    const std::string text = read_file(runs());
    const std::string cut = directory.write("cut.jsonl", text.substr(0, text.size() - 100));
    CHECK(read_run_file(cut).size() == 11);
    const Outcome wrong = run_headroom({"calibrate", "run", "--compare", directory.write("wrong", "x\ny\n")});
    CHECK(wrong.status == 2);
    CHECK(contains(wrong.err, "wrong:1"));
}

}  // namespace headroom
