// SPDX-License-Identifier: Apache-2.0
// A step's mix slows what a probe alone measured, and products are told apart from their results.
#include <doctest/doctest.h>

#include <fmt/format.h>

#include "calibrate/fit.hpp"
#include "simulator/rates.hpp"

namespace headroom {
namespace {

constexpr int processors = 132;

Json provenance() {
    Json gpu{{"name", "Made Up"}, {"memory_bytes", 100}, {"streaming_multiprocessors", processors}};
    return {{"gpus", Json::array({gpu})},
            {"driver", {{"version", "1"}}},
            {"libraries", {{"cudnn", "9"}}},
            {"host", {{"memory_bytes", 1000}}},
            {"started", "2026-01-01T00:00:00Z"}};
}

Json record(const std::string& name, const std::string& kind, const Json& settings, double seconds, double amount) {
    return {{"record", "probe"},
            {"name", name},
            {"kind", kind},
            {"settings", settings},
            {"status", "ok"},
            {"seconds", {{"median", seconds}}},
            {"rate_per_second", amount / seconds}};
}

Json settings_of(const Attention& a) {
    return {{"direction", a.backward ? "backward" : "forward"},
            {"mask", a.causal ? "causal" : "full"},
            {"query_tokens", a.query_len},
            {"key_tokens", a.key_len},
            {"heads", a.heads},
            {"kv_heads", a.kv_heads},
            {"head_dim", a.head_dim}};
}

AttentionKernelConstants known_kernel() {
    AttentionKernelConstants kernel;
    for (auto& direction : kernel.curves) {
        for (AttentionCurve& curve : direction) {
            curve.asymptote.value = 600e12;
            curve.half_length = 900;
            curve.exponent = 1.2;
        }
    }
    return kernel;
}

Attention shape_of(std::int64_t tokens, std::int32_t heads, bool causal, bool backward) {
    return {tokens, tokens, heads, heads, 128, 1, causal, backward};
}

/// Brief probes of a known curve, and the mix with `share` of its rates at 128K and 512K.
ProbeFile probes_with(double share_128, double share_512) {
    ProbeFile file;
    file.name = "made.jsonl";
    file.provenance = provenance();
    const AttentionKernelConstants kernel = known_kernel();
    for (const bool backward : {false, true}) {
        for (const bool causal : {false, true}) {
            for (std::int64_t tokens = 8192; tokens <= 65536; tokens *= 2) {
                const Attention shape = shape_of(tokens, 16, causal, backward);
                const double flops = attention_flops(shape);
                file.records.push_back(record(fmt::format("attention/{}/{}/{}", backward, causal, tokens), "attention",
                                              settings_of(shape), flops / attention_rate(kernel, shape, processors),
                                              flops));
            }
        }
    }
    for (const auto& [tokens, share] : {std::pair{131072, share_128}, {524288, share_512}}) {
        Json parts{{"gemm", 1e-3}};
        for (const bool backward : {false, true}) {
            const Attention shape = shape_of(tokens, 16, true, backward);
            parts[backward ? "backward" : "forward"] =
                attention_flops(shape) / attention_rate(kernel, shape, processors) / share;
        }
        Json mix = record(fmt::format("sustained/{}", tokens), "sustained",
                          settings_of(shape_of(tokens, 16, true, false)), 1, 1);
        mix["settings"]["gemm"] = {1000, 1000, 1000};
        mix["notes"] = {{"seconds_of_parts", parts}};
        file.records.push_back(mix);
    }
    return file;
}

double fitted_rate(const FitResult& fit, const Attention& shape) {
    AttentionKernelConstants kernel;
    for (const auto& [causal, curve] : shape.backward ? fit.backward : fit.forward) {
        kernel.curves[shape.backward ? 1 : 0][causal ? 1 : 0] = curve.curve;
    }
    return attention_rate(kernel, shape, processors);
}

}  // namespace

TEST_CASE("a mix that keeps 95 % of the rate makes the whole curve 5 % slower, under both masks") {
    const FitResult fit = fit_probes({probes_with(0.95, 0.95)});
    for (const bool backward : {false, true}) {
        for (const bool causal : {false, true}) {
            CAPTURE(backward);
            CAPTURE(causal);
            for (const std::int64_t tokens : {8192, 32768, 131072}) {
                const Attention shape = shape_of(tokens, 16, causal, backward);
                CHECK(fitted_rate(fit, shape) ==
                      doctest::Approx(0.95 * attention_rate(known_kernel(), shape, processors)).epsilon(0.005));
            }
        }
    }
    REQUIRE(fit.remarks.size() == 4);
    CHECK(fit.remarks.front() == "forward causal attention over 128K keys keeps 95.0 % of its rate in the mix");
}

TEST_CASE("the longer the keys the more the mix may cost, and short ones stay as at the shorter mix") {
    const FitResult fit = fit_probes({probes_with(1.0, 0.94)});
    const auto kept = [&](std::int64_t tokens) {
        const Attention shape = shape_of(tokens, 16, true, true);
        return fitted_rate(fit, shape) / attention_rate(known_kernel(), shape, processors);
    };
    CHECK(kept(8192) == doctest::Approx(1).epsilon(0.02));
    CHECK(kept(524288) < 0.97);
    CHECK(kept(524288) < kept(65536));
}

TEST_CASE("without the mix nothing changes") {
    ProbeFile file = probes_with(0.9, 0.9);
    std::erase_if(file.records, [](const Json& one) { return one["kind"] == "sustained"; });
    const FitResult fit = fit_probes({file});
    const Attention shape = shape_of(16384, 16, false, true);
    CHECK(fitted_rate(fit, shape) == doctest::Approx(attention_rate(known_kernel(), shape, processors)).epsilon(0.002));
    CHECK(fit.remarks.empty());
}

TEST_CASE("two depths of a product, and one that adds, say what writing and reading the result takes") {
    // Copies run at 4e12 bytes/s and products at 1e15 FLOP/s; 0.6 of the result's traffic is not hidden.
    ProbeFile file;
    file.name = "made.jsonl";
    file.provenance = provenance();
    file.records.push_back(record("kernel/copy/128Kx4096", "device_kernel", Json::object(), 1, 4e12));
    const auto product = [&](const char* name, std::int64_t k, bool adds) {
        const double m = 128256, n = 4096, flops = 2 * m * n * static_cast<double>(k);
        Json settings{{"m", 128256}, {"n", 4096}, {"k", k}};
        if (adds) settings["adds"] = true;
        const double seconds = flops / 1e15 + (adds ? 2 : 1) * 0.6 * 2 * m * n / 4e12;
        file.records.push_back(record(name, "gemm", settings, seconds, flops));
    };
    product("gemm/128256x4096/4K", 4096, false);
    product("gemm/4096x1024/128256", 1024, false);
    product("gemm/4096x1024/128256/adds", 1024, true);
    const FitResult fit = fit_probes({file});
    CHECK(fit.epilogue.value == doctest::Approx(0.6));
    REQUIRE(fit.gemm.size() == 1);  // the short ones are not in the table
    CHECK(fit.gemm.front().point.k == 4096);
}

}  // namespace headroom
