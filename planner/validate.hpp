// SPDX-License-Identifier: Apache-2.0
// Predictions against measured results: what was said to fit and failed, what was refused though it ran, and by how
// much the figures differ. Nothing is fitted here.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "models/measurement.hpp"
#include "planner/plan.hpp"

namespace headroom {

/// Prediction against what happened.
enum class Agreement {
    right,
    said_fits_and_failed,
    refused_though_it_ran,
    unchecked,  ///< not run, or not expressed
};

/// What step times rest on, for each machine; empty for no times.
using BasisFor = std::function<TimeBasis(const Cluster&)>;

struct Comparison {
    Measurement measured;
    bool valid = false;   ///< the recipe can be planned; otherwise `verdict` is the rule it breaks
    Recipe recipe;        ///< resolved, when it is valid
    std::string verdict;  ///< one sentence
    Agreement agreement = Agreement::unchecked;

    /// In the unit of the metric. A peak of no stated kind has a range: allocated to used on the device.
    std::optional<double> predicted, predicted_high;
    std::optional<double> error_percent;                ///< signed; 0 inside a range
    std::optional<double> interval_low, interval_high;  ///< what a predicted time claims, in the unit of the metric
    std::vector<std::string> notes;                     ///< what the difference looks like
};

/// Signed errors in percent of one group of comparisons.
struct ErrorSummary {
    std::string name;
    std::size_t count = 0;
    double median = 0, mean_absolute = 0, worst = 0;
    std::string worst_id;
};

struct Summaries {
    std::vector<ErrorSummary> by_method;
    ErrorSummary overall;
};

struct Unexpressed {
    std::string reason;
    std::vector<std::string> ids;
};

struct Validation {
    std::vector<Comparison> comparisons;  ///< of what is expressed, in the order given
    Summaries memory;                     ///< of figures whose kind is stated
    Summaries time;
    std::size_t with_interval = 0, inside_interval = 0;  ///< times, and how many lie in the interval predicted
    std::vector<Unexpressed> not_expressed;              ///< most entries first
    std::size_t without_prediction = 0;                  ///< figures that are measured and not predicted
    std::vector<std::string> warnings;                   ///< of the reader

    std::size_t count(Agreement agreement) const;
};

Validation validate(const std::vector<Measurement>& measurements, const BasisFor& basis_for = {});

/// Of signed errors with the ids they belong to; all 0 when there is none.
ErrorSummary summarise(const std::string& name, const std::vector<std::pair<double, std::string>>& errors);

/// The allocated peak as the UPipe paper's figure splits it: states with complete gradient shards, attention with its
/// communication and the rotary table of the whole context, and the rest.
struct PaperSplit {
    Bytes states, attention, other;
};
PaperSplit paper_split(const Plan& plan);

/// Bytes at the peak that grow with the tokens of a rank.
Bytes activations_at_peak(const Plan& plan);

std::string validation_text(const Validation& validation);
std::string validation_json(const Validation& validation);
std::string validation_csv(const Validation& validation);

}  // namespace headroom
