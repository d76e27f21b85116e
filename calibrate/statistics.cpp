// SPDX-License-Identifier: Apache-2.0
#include "calibrate/statistics.hpp"

#include <algorithm>
#include <cmath>

namespace headroom {

double quantile(std::vector<double> values, double share) {
    if (values.empty()) return 0;
    std::sort(values.begin(), values.end());
    const double place = share * static_cast<double>(values.size() - 1);
    const auto below = static_cast<std::size_t>(place);
    const std::size_t above = std::min(below + 1, values.size() - 1);
    const double weight = place - static_cast<double>(below);
    return values[below] * (1 - weight) + values[above] * weight;
}

Summary summarise(const std::vector<double>& samples) {
    Summary result;
    result.samples = samples.size();
    result.median = quantile(samples, 0.5);
    std::vector<double> distances;
    distances.reserve(samples.size());
    for (const double sample : samples) distances.push_back(std::abs(sample - result.median));
    result.mad = quantile(distances, 0.5);
    result.p10 = quantile(samples, 0.1);
    result.p90 = quantile(samples, 0.9);
    return result;
}

std::string_view to_string(Stop stop) {
    switch (stop) {
        case Stop::converged:
            return "converged";
        case Stop::sample_limit:
            return "sample limit";
        case Stop::time_limit:
            break;
    }
    return "time limit";
}

bool done(const StoppingRule& rule, const std::vector<double>& samples, double elapsed, Stop& why) {
    // One sample at least: a probe slower than its limit still says something.
    if (!samples.empty() && elapsed >= rule.seconds_most) {
        why = Stop::time_limit;
        return true;
    }
    if (samples.size() < rule.fewest || elapsed < rule.seconds_least) return false;
    if (samples.size() >= rule.most) {
        why = Stop::sample_limit;
        return true;
    }
    why = Stop::converged;
    return summarise(samples).relative_mad() <= rule.relative_mad;
}

}  // namespace headroom
