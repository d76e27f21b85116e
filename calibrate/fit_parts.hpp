// SPDX-License-Identifier: Apache-2.0
// Parts of the fit, each from the records of its own kind.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "calibrate/fit.hpp"

namespace headroom {

/// Records of finished probes by name; a probe that ran in several sessions has several.
using Records = std::map<std::string, std::vector<Json>>;

/// The attention that a probe's settings name.
Attention attention_of(const Json& settings);
/// Medians over the sessions that have the probe.
double rate_of(const std::vector<Json>& records);
double seconds_of(const std::vector<Json>& records);
/// The median, a range over all values and at least `spread` wide.
Constant measured(const std::vector<double>& values, double spread, std::string reference);

/// Points of one direction as they are in a step: brief ones slowed by what the sustained probes show of their length,
/// and those probes themselves among the causal ones. Without such probes nothing changes.
void sustain(const Records& records, bool backward, std::vector<AttentionPoint>& causal,
             std::vector<AttentionPoint>& full, FitResult& result);
/// What a step leaves of the rate of products; 1 without sustained probes.
double sustained_share_of_products(const Records& records, FitResult& result);

void fit_links(const Records& records, const std::string& label, FitResult& result);
void fit_overlaps(const Records& records, const std::string& label, FitResult& result);
void fit_device_memory(const std::vector<ProbeFile>& files, const Records& records, FitResult& result);

}  // namespace headroom
