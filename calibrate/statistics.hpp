// SPDX-License-Identifier: Apache-2.0
// What a series of timings says, and when it says enough.
#pragma once

#include <cstddef>
#include <string_view>
#include <vector>

namespace headroom {

/// Median of |x - median|, and the quantiles that show a tail. Seconds, or whatever the samples are in.
struct Summary {
    double median = 0, mad = 0, p10 = 0, p90 = 0;
    std::size_t samples = 0;
    /// MAD over median: 0 when all samples agree.
    double relative_mad() const { return median > 0 ? mad / median : 0; }
};

/// Quantile by linear interpolation between order statistics; `share` from 0 to 1.
double quantile(std::vector<double> values, double share);
Summary summarise(const std::vector<double>& samples);

/// Why sampling ended. The name goes into the record: a reader sees which rule was met and which was not.
enum class Stop { converged, sample_limit, time_limit };
std::string_view to_string(Stop stop);

struct StoppingRule {
    std::size_t fewest = 5;      ///< samples before anything but the hard time limit ends the probe
    std::size_t most = 50;       ///< samples
    double relative_mad = 0.01;  ///< converged below this
    double seconds_least = 0;    ///< sampling goes on this long even when converged: a sustained load
    double seconds_most = 2;     ///< of sampling
};

/// Is the series done? `elapsed` seconds since its first sample began.
bool done(const StoppingRule& rule, const std::vector<double>& samples, double elapsed, Stop& why);

/// Warm-up ends when both are reached, or at the hard limit.
struct WarmRule {
    std::size_t runs = 3;
    double seconds = 0.1;
};

}  // namespace headroom
