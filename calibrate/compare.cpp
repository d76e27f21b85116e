// SPDX-License-Identifier: Apache-2.0
#include "calibrate/compare.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "calibrate/probe.hpp"
#include "simulator/rates.hpp"

namespace headroom {
namespace {

bool is_own(const Constant& constant) {
    return constant.source == Source::measured || constant.source == Source::fitted;
}

constexpr ConstantUnit flops{"TFLOP/s", 1e12}, times{"us", 1e-6};

/// `value` with the relative range of `from`.
Constant scaled(const Constant& from, double value) {
    return {value, value * from.low / from.value, value * from.high / from.value, from.source, from.reference};
}

void add_attention(std::vector<ConstantDifference>& list, const Calibration& first, const Calibration& second) {
    for (std::size_t kernel = 0; kernel < first.attention.size(); ++kernel) {
        for (const bool backward : {false, true}) {
            for (const bool causal : {false, true}) {
                const auto& curve = first.attention[kernel].curves[backward ? 1 : 0][causal ? 1 : 0];
                const auto& other = second.attention[kernel].curves[backward ? 1 : 0][causal ? 1 : 0];
                if (!curve.known() || !other.known() || !is_own(curve.asymptote) || !is_own(other.asymptote)) continue;
                for (const std::int64_t tokens : {8192, 32768, 131072, 1048576}) {
                    if (tokens < std::max(curve.shortest, other.shortest)) continue;
                    if (tokens > std::min(curve.longest, other.longest)) continue;
                    // Few heads on the longest: what runs there.
                    const std::int32_t heads = tokens > 131072 ? 1 : 32, kv_heads = tokens > 131072 ? 1 : 8;
                    const Attention shape{tokens, tokens, heads, kv_heads, 128, 1, causal, backward};
                    const auto rate = [&](const Calibration& of) {
                        return attention_rate(of.attention[kernel], shape, of.gemm.streaming_multiprocessors);
                    };
                    list.push_back({fmt::format("attention.{}.{}.{}.{}", attention_kernel_names[kernel],
                                                backward ? "backward" : "forward", causal ? "causal" : "full",
                                                binary_tokens(tokens)),
                                    flops, scaled(curve.asymptote, rate(first)),
                                    scaled(other.asymptote, rate(second))});
                }
            }
        }
    }
}

void add_products(std::vector<ConstantDifference>& list, const Calibration& first, const Calibration& second) {
    for (const GemmPoint& point : first.gemm.points) {
        const auto same = std::find_if(
            second.gemm.points.begin(), second.gemm.points.end(),
            [&](const GemmPoint& other) { return other.m == point.m && other.n == point.n && other.k == point.k; });
        if (same == second.gemm.points.end() || !is_own(point.rate) || !is_own(same->rate)) continue;
        list.push_back({fmt::format("gemm.m{}.n{}.k{}", point.m, point.n, point.k), flops, point.rate, same->rate});
    }
}

void add_links(std::vector<ConstantDifference>& list, const Calibration& first, const Calibration& second) {
    for (std::size_t kind = 0; kind < first.links.size(); ++kind) {
        const LinkCurve &a = first.links[kind], &b = second.links[kind];
        if (!is_own(a.rate) || !is_own(b.rate) || a.ranks != b.ranks) continue;
        for (const std::int64_t bytes : {4 * mebi, 64 * mebi, gibi}) {
            const auto seconds = [&](const LinkCurve& link) {
                return link.alpha.value + table_seconds(link.points, static_cast<double>(bytes));
            };
            list.push_back({fmt::format("links.{}.{}", link_names[kind], binary_size(bytes)), times,
                            scaled(a.rate, seconds(a)), scaled(b.rate, seconds(b))});
        }
    }
}

}  // namespace

std::vector<ConstantDifference> differences(const Calibration& first, const Calibration& second) {
    std::vector<ConstantDifference> list;
    add_attention(list, first, second);
    add_products(list, first, second);
    add_links(list, first, second);
    const std::vector<NamedConstant> others = constants_of(second);
    for (const NamedConstant& one : constants_of(first)) {
        // Read at shapes above; a start-up is the small rest of two large numbers and stands in the times.
        if (one.name.starts_with("gemm.") || one.name.starts_with("links.")) continue;
        if (one.name.starts_with("attention.") && one.name.find(".exposed.") == std::string::npos) continue;
        const auto same = std::find_if(others.begin(), others.end(),
                                       [&](const NamedConstant& other) { return other.name == one.name; });
        if (same == others.end() || !is_own(one.constant) || !is_own(same->constant)) continue;
        list.push_back({one.name, one.unit, one.constant, same->constant});
    }
    return list;
}

bool agree(const std::vector<ConstantDifference>& differences, double tolerance) {
    return std::all_of(differences.begin(), differences.end(), [&](const ConstantDifference& one) {
        return std::abs(one.share()) <= tolerance || one.within_spread();
    });
}

std::string compare_text(const Calibration& first, const Calibration& second, double tolerance) {
    std::vector<ConstantDifference> list = differences(first, second);
    if (list.empty()) return "nothing that both have measured themselves\n";
    std::stable_sort(list.begin(), list.end(), [](const ConstantDifference& a, const ConstantDifference& b) {
        return std::abs(a.share()) > std::abs(b.share());
    });
    std::string text = fmt::format("{:<38} {:>12} {:>12} {:>8}\n", "figure", first.name, second.name, "apart");
    std::size_t apart = 0;
    for (const ConstantDifference& one : list) {
        if (std::abs(one.share()) <= tolerance) continue;
        ++apart;
        text += fmt::format("{:<38} {:>12.5g} {:>12.5g} {:>+7.1f} %  {}{}\n", one.name,
                            one.first.value / one.unit.factor, one.second.value / one.unit.factor, 100 * one.share(),
                            one.unit.name, one.within_spread() ? "" : "  beyond the spreads of both");
    }
    if (apart == 0) text.clear();
    return text + fmt::format("{} of {} figures within {:.3g} %\n", list.size() - apart, list.size(), 100 * tolerance);
}

}  // namespace headroom
