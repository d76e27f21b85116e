// SPDX-License-Identifier: Apache-2.0
// What the mix of a step, on all GPUs for seconds, leaves of the rates that each kernel has by itself for a moment.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <optional>

#include "calibrate/fit_parts.hpp"
#include "simulator/rates.hpp"

namespace headroom {
namespace {

/// A run longer than this has seen the cap for most of itself.
constexpr double long_run_seconds = 0.2;

struct Share {
    double tokens, of_rate;
};

/// Between two lengths by the logarithm; beyond them as at the nearest.
double share_at(const std::vector<Share>& shares, double tokens) {
    if (tokens <= shares.front().tokens) return shares.front().of_rate;
    for (std::size_t i = 1; i < shares.size(); ++i) {
        const Share &low = shares[i - 1], &high = shares[i];
        if (tokens > high.tokens) continue;
        const double at = std::log(tokens / low.tokens) / std::log(high.tokens / low.tokens);
        return low.of_rate + at * (high.of_rate - low.of_rate);
    }
    return shares.back().of_rate;
}

double part_seconds(const std::vector<Json>& records, const char* part) {
    std::vector<double> seconds;
    for (const Json& record : records) seconds.push_back(record.at("notes").at("seconds_of_parts").at(part));
    return quantile(seconds, 0.5);
}

/// Causal attention inside the mix, shortest first.
std::vector<AttentionPoint> points_of_mix(const Records& records, bool backward) {
    std::vector<AttentionPoint> points;
    for (const auto& [name, same] : records) {
        if (same.front()["kind"] != "sustained") continue;
        Attention shape = attention_of(same.front()["settings"]);
        shape.backward = backward;
        const double seconds = part_seconds(same, backward ? "backward" : "forward");
        points.push_back({name, shape, attention_flops(shape) / seconds, seconds});
    }
    std::sort(points.begin(), points.end(),
              [](const auto& a, const auto& b) { return a.shape.key_len < b.shape.key_len; });
    return points;
}

}  // namespace

void sustain(const Records& records, bool backward, std::vector<AttentionPoint>& causal,
             std::vector<AttentionPoint>& full, FitResult& result) {
    const std::vector<AttentionPoint> mix = points_of_mix(records, backward);
    std::vector<AttentionPoint> brief;
    std::copy_if(causal.begin(), causal.end(), std::back_inserter(brief),
                 [](const AttentionPoint& point) { return point.seconds <= long_run_seconds; });
    constexpr std::size_t fewest = 4;  // of a curve
    if (mix.empty() || brief.size() < fewest) return;
    AttentionKernelConstants kernel;
    kernel.curves[backward ? 1 : 0][1] = fit_attention(brief, result.streaming_multiprocessors).curve;
    std::vector<Share> shares;
    for (const AttentionPoint& point : mix) {
        const double alone = attention_rate(kernel, point.shape, result.streaming_multiprocessors);
        shares.push_back({static_cast<double>(point.shape.key_len), point.rate / alone});
        result.remarks.push_back(fmt::format("{} causal attention over {}K keys keeps {:.1f} % of its rate in the mix",
                                             backward ? "backward" : "forward", point.shape.key_len / 1024,
                                             100 * shares.back().of_rate));
    }
    for (std::vector<AttentionPoint>* points : {&causal, &full}) {
        for (AttentionPoint& point : *points) {
            if (point.seconds > long_run_seconds) continue;
            point.rate *= share_at(shares, static_cast<double>(point.shape.key_len));
        }
    }
    std::erase_if(causal, [&](const AttentionPoint& point) {
        return std::any_of(mix.begin(), mix.end(), [&](const AttentionPoint& one) { return one.shape == point.shape; });
    });
    causal.insert(causal.end(), mix.begin(), mix.end());
}

double sustained_share_of_products(const Records& records, FitResult& result) {
    std::vector<double> shares;
    for (const auto& [name, same] : records) {
        if (same.front()["kind"] != "sustained") continue;
        const Json& gemm = same.front()["settings"].at("gemm");
        const auto alone = std::find_if(records.begin(), records.end(), [&](const auto& one) {
            const Json& record = one.second.front();
            if (record["kind"] != "gemm") return false;
            const Json& settings = record["settings"];
            return settings.at("m") == gemm[0] && settings.at("n") == gemm[1] && settings.at("k") == gemm[2];
        });
        if (alone == records.end()) continue;
        shares.push_back(seconds_of(alone->second) / part_seconds(same, "gemm"));
    }
    if (shares.empty()) return 1;
    const double share = quantile(shares, 0.5);
    result.remarks.push_back(fmt::format("products keep {:.1f} % of their rate in the mix", 100 * share));
    return share;
}

}  // namespace headroom
