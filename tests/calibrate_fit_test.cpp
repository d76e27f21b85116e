// SPDX-License-Identifier: Apache-2.0
// The fit finds the constants that made the points, and what it writes is a calibration.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>

#include "calibrate/fit.hpp"
#include "configs/calibration.hpp"
#include "models/error.hpp"
#include "run_headroom.hpp"
#include "simulator/rates.hpp"

using namespace headroom;

namespace {

constexpr int processors = 132;

AttentionKernelConstants known_kernel(bool backward, bool causal) {
    AttentionKernelConstants kernel;
    AttentionCurve& curve = kernel.curves[backward ? 1 : 0][causal ? 1 : 0];
    curve.asymptote.value = 600e12;
    curve.half_length = 900;
    curve.exponent = 1.3;
    curve.fall = 0.04;
    curve.tail = causal ? 0.4 : 0;
    return kernel;
}

std::vector<AttentionPoint> points_of(bool backward, bool causal) {
    std::vector<AttentionPoint> points;
    const AttentionKernelConstants kernel = known_kernel(backward, causal);
    for (const std::int32_t heads : {1, 4, 32}) {
        for (std::int64_t tokens = 2048; tokens <= 262144; tokens *= 2) {
            const Attention shape{tokens, tokens, heads, heads, 128, 1, causal, backward};
            points.push_back({std::to_string(heads) + "x" + std::to_string(tokens), shape,
                              attention_rate(kernel, shape, processors)});
        }
    }
    return points;
}

std::vector<std::string> committed_files() {
    const std::string folder = std::string(HEADROOM_PROBES) + "/";
    return {folder + "h200-attention-2026-11-30.jsonl", folder + "h200-gemm-2026-11-30.jsonl",
            folder + "h200-kernels-2026-11-30.jsonl", folder + "h200-host-2026-11-30.jsonl"};
}

}  // namespace

TEST_CASE("points made by a curve give the curve back") {
    for (const bool backward : {false, true}) {
        for (const bool causal : {false, true}) {
            CAPTURE(backward);
            CAPTURE(causal);
            const CurveFit fit = fit_attention(points_of(backward, causal), processors);
            CHECK(fit.curve.asymptote.value == doctest::Approx(600e12).epsilon(0.002));
            CHECK(fit.curve.half_length == doctest::Approx(900).epsilon(0.02));
            CHECK(fit.curve.exponent == doctest::Approx(1.3).epsilon(0.01));
            CHECK(fit.curve.fall == doctest::Approx(0.04));
            CHECK(fit.curve.tail == doctest::Approx(causal ? 0.4 : 0));
            CHECK(fit.residuals.worst < 1e-3);
            CHECK(fit.residuals.leave_one_out < 1e-3);
            CHECK(fit.residuals.outliers.empty());
            CHECK(fit.curve.shortest == 2048);
            CHECK(fit.curve.longest == 262144);
        }
    }
}

TEST_CASE("one point far off is named and left out, and the order of points does not matter") {
    std::vector<AttentionPoint> points = points_of(false, true);
    points[7].rate *= 0.5;
    const CurveFit fit = fit_attention(points, processors);
    REQUIRE(fit.residuals.outliers.size() == 1);
    CHECK(contains(fit.residuals.outliers[0], points[7].name));
    const auto fills = [](const AttentionPoint& point) {
        return point.shape.heads * point.shape.query_len / 128 >= 3 * processors;
    };
    CHECK(fit.residuals.points == static_cast<std::size_t>(std::count_if(points.begin(), points.end(), fills)) - 1);
    CHECK(fit.curve.asymptote.value == doctest::Approx(600e12).epsilon(0.002));
    std::reverse(points.begin(), points.end());
    CHECK(fit_attention(points, processors).curve.asymptote.value == fit.curve.asymptote.value);
    points.resize(3);
    CHECK_THROWS_AS(fit_attention(points, processors), Error);
}

TEST_CASE("kernels too small to fill the GPU do not bend the curve of those that do") {
    std::vector<AttentionPoint> points = points_of(true, true);
    int small = 0;
    for (AttentionPoint& point : points) {
        if (point.shape.heads * point.shape.key_len / 128 >= 3 * processors) continue;
        point.rate *= small++ % 2 == 0 ? 0.7 : 1.3;
    }
    CHECK(small > 5);
    CHECK(fit_attention(points, processors).curve.asymptote.value == doctest::Approx(600e12).epsilon(0.002));
}

TEST_CASE("the committed probes make a calibration that gives back what was probed") {
    const TemporaryDirectory directory;
    std::vector<std::string> words{"calibrate", "fit",  "--base", "h200",
                                   "--name",    "h200", "-o",     directory.path("fit.yaml")};
    for (const std::string& file : committed_files()) words.push_back(file);
    const Outcome outcome = run_headroom(words);
    CAPTURE(outcome.err);
    REQUIRE(outcome.status == 0);
    const Calibration fitted = load_calibration(directory.path("fit.yaml"));
    CHECK(fitted.kind == "measured");
    CHECK(fitted.memory.copy_rate.value == doctest::Approx(4243e9).epsilon(0.001));
    CHECK(fitted.host.to_host.value == doctest::Approx(55.2e9).epsilon(0.005));
    CHECK(contains(read_file(directory.path("fit.yaml")), "# left out: gemm/256x4096/2K: only 16 tiles"));
    CHECK(fitted.host.pageable_fresh.source == Source::measured);
    for (const std::string& path : committed_files()) {
        const ProbeFile file = read_probe_file(path);
        for (const Json& record : file.records) {
            const std::string name = record["name"];
            CAPTURE(name);
            if (record["kind"] == "gemm" && name != "gemm/256x4096/2K") {  // 16 tiles: left out, with a comment
                const Json& s = record["settings"];
                const double rate = gemm_rate(fitted.gemm, s["m"], s["n"], s["k"]);
                CHECK(rate == doctest::Approx(record["rate_per_second"].get<double>()).epsilon(0.05));
            }
            if (record["kind"] == "attention" && record["settings"]["head_dim"] == 128 &&
                record["settings"]["heads"] == 32) {
                const Json& s = record["settings"];
                const Attention shape{s["query_tokens"],
                                      s["key_tokens"],
                                      s["heads"],
                                      s["kv_heads"],
                                      128,
                                      1,
                                      s["mask"] == "causal",
                                      s["direction"] == "backward"};
                const double rate = attention_rate(fitted.attention[2], shape, processors);
                CHECK(rate == doctest::Approx(record["rate_per_second"].get<double>()).epsilon(0.04));
            }
        }
    }
    // The same input gives the same output, in whatever order the files are named.
    std::reverse(words.end() - 4, words.end());
    words[7] = directory.path("again.yaml");
    CHECK(run_headroom(words).status == 0);
    CHECK(read_file(directory.path("again.yaml")) == read_file(directory.path("fit.yaml")));
}

TEST_CASE("what cannot be fitted is refused") {
    const TemporaryDirectory directory;
    std::string other = read_file(committed_files()[1]);
    other.replace(other.find("NVIDIA H200"), 11, "NVIDIA H100");
    const Outcome mixed =
        run_headroom({"calibrate", "fit", committed_files()[1], directory.write("other.jsonl", other)});
    CHECK(mixed.status == 2);
    CHECK(contains(mixed.err, "different GPUs"));
    const Outcome missing = run_headroom({"calibrate", "fit", directory.path("none.jsonl")});
    CHECK(missing.status == 1);
    CHECK(contains(missing.err, "cannot read the probe file"));
    const Outcome wrong = run_headroom({"calibrate", "fit", directory.write("x", "hello\n")});
    CHECK(wrong.status == 2);
    CHECK(contains(wrong.err, "no probe record"));
    const Outcome base = run_headroom({"calibrate", "fit", "--base", "h201", committed_files()[0]});
    CHECK(base.status == 2);
    CHECK(contains(base.err, "h201"));
}
