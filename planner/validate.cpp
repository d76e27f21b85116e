// SPDX-License-Identifier: Apache-2.0
#include "planner/validate.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "models/error.hpp"
#include "planner/evaluate.hpp"
#include "planner/max_context.hpp"
#include "planner/validate_hints.hpp"

namespace headroom {
namespace {

/// What is known of a run before it is measured.
struct Forecast {
    Plan plan;
    std::string refusal;  ///< set when the recipe breaks a rule; `plan` is then empty
};

/// Figures of one run follow each other: the last forecast is kept.
class Forecaster {
 public:
    explicit Forecaster(const BasisFor& basis_for) : basis_for_(basis_for) {}

    const Forecast& of(const Measurement& run) {
        if (known_ && same_run(run, last_)) return forecast_;
        last_ = run;
        known_ = true;
        forecast_ = {};
        try {
            const Recipe recipe = resolve(run.said, run.published, run.model, run.cluster);
            forecast_.plan = make_plan(run.model, run.cluster, recipe);
        } catch (const Error& error) {
            forecast_.refusal = error.what();
        }
        if (basis_for_ && forecast_.refusal.empty()) add_time(run.cluster);
        return forecast_;
    }

 private:
    /// Constants that cannot be right are no verdict on the run.
    void add_time(const Cluster& cluster) {
        try {
            add_step(forecast_.plan, basis_for_(cluster), evaluator_);
        } catch (const Error& error) {
            forecast_.plan.warnings.emplace_back(error.what());
        }
    }

    static bool same_run(const Measurement& a, const Measurement& b) {
        return a.model.name == b.model.name && same_machine(a.cluster, b.cluster) && same_recipe(a, b);
    }

    const BasisFor& basis_for_;
    Evaluator evaluator_;
    bool known_ = false;
    Measurement last_;
    Forecast forecast_;
};

struct Range {
    Bytes low, high;
};

/// The allocator keeps what it once reserved while there is room, and never less than it needs.
Bytes reserved(const DeviceMemory& device) {
    return std::max(std::min(device.peak_reserved, device.usable), device.peak + device.unreturnable);
}

std::optional<Range> predicted_bytes(Figure figure, const Plan& plan) {
    const DeviceMemory& device = plan.device;
    const auto exactly = [](Bytes bytes) { return Range{bytes, bytes}; };
    switch (figure) {
        case Figure::peak:
            return Range{device.peak, reserved(device) + device.outside_allocator};
        case Figure::peak_allocated:
            return exactly(device.peak);
        case Figure::peak_reserved:
            return exactly(reserved(device));
        case Figure::device_used:
            return exactly(reserved(device) + device.outside_allocator);
        case Figure::states:
            return exactly(paper_split(plan).states);
        case Figure::attention:
            return exactly(paper_split(plan).attention);
        case Figure::other:
            return exactly(paper_split(plan).other);
        case Figure::host_memory:
            return exactly(plan.host.peak_per_node);
        case Figure::host_pageable:
            return exactly(plan.host.pageable_per_node);
        default:
            return std::nullopt;
    }
}

std::optional<double> longest_context(const Measurement& run) {
    Settings said = run.said;
    said.context.reset();
    const MaxContext found = max_context(said, run.published, run.model, run.cluster);
    return found.valid ? std::optional<double>(static_cast<double>(found.context.value)) : std::nullopt;
}

/// Of a step that takes `seconds`, in the unit of the figure. All but the time itself are rates.
double time_figure(Figure figure, const Plan& plan, Seconds seconds) {
    const double slower = seconds.value / plan.step->time.seconds.value;
    switch (figure) {
        case Figure::tokens_per_second:
            return plan.step->tokens_per_second / slower;
        case Figure::tokens_per_second_per_gpu:
            return plan.step->tokens_per_second_per_gpu / slower;
        case Figure::model_tflops:
            return plan.step->mfu * plan.cluster.peak_bf16.value / 1e12 / slower;
        default:
            return seconds.value;
    }
}

void predict_time(Comparison& row, const Plan& plan) {
    const Figure figure = row.measured.metric.figure;
    if (!is_time(figure) || !plan.step) return;
    row.predicted = time_figure(figure, plan, plan.step->time.seconds);
    const double one = time_figure(figure, plan, plan.step->time.low);
    const double other = time_figure(figure, plan, plan.step->time.high);
    row.interval_low = std::min(one, other);  // a slower step is a lower rate
    row.interval_high = std::max(one, other);
}

void predict(Comparison& row, const Forecast& forecast) {
    const Metric& metric = row.measured.metric;
    if (const auto bytes = predicted_bytes(metric.figure, forecast.plan)) {
        row.predicted = static_cast<double>(bytes->low.value) / metric.unit;
        if (bytes->high != bytes->low) row.predicted_high = static_cast<double>(bytes->high.value) / metric.unit;
    } else if (metric.figure == Figure::max_context && row.measured.value) {
        row.predicted = longest_context(row.measured);
    }
    predict_time(row, forecast.plan);
    if (!row.predicted || !row.measured.value || *row.measured.value <= 0) return;
    const double measured = *row.measured.value;
    const double nearest = std::clamp(measured, *row.predicted, row.predicted_high.value_or(*row.predicted));
    row.error_percent = 100 * (nearest - measured) / measured;
}

Agreement judge(RunStatus status, bool fits) {
    if (status == RunStatus::not_run) return Agreement::unchecked;
    const bool ran = status == RunStatus::ok;
    if (ran == fits) return Agreement::right;
    return fits ? Agreement::said_fits_and_failed : Agreement::refused_though_it_ran;
}

Comparison compare(const Measurement& run, Forecaster& forecaster) {
    Comparison row;
    row.measured = run;
    const Forecast& forecast = forecaster.of(run);
    row.valid = forecast.refusal.empty();
    row.verdict = row.valid ? forecast.plan.verdict : forecast.refusal;
    row.agreement = judge(run.status, row.valid && forecast.plan.fits);
    if (!row.valid) return row;
    row.recipe = forecast.plan.recipe;
    predict(row, forecast);
    const std::string hint = activation_hint(row, forecast.plan);
    if (!hint.empty()) row.notes.push_back(hint);
    return row;
}

/// A limit that somebody states is compared, but is no error of a figure: the next length tried is seldom known.
bool counts_as_error(const Comparison& row) {
    return row.error_percent && row.measured.metric.figure != Figure::peak &&
           row.measured.metric.figure != Figure::max_context;
}

Summaries summaries_of(const std::vector<Comparison>& rows, bool time) {
    std::map<Method, std::vector<std::pair<double, std::string>>> by_method;
    std::vector<std::pair<double, std::string>> all;
    for (const Comparison& row : rows) {
        if (!counts_as_error(row) || is_time(row.measured.metric.figure) != time) continue;
        by_method[row.recipe.method].emplace_back(*row.error_percent, row.measured.id);
        all.emplace_back(*row.error_percent, row.measured.id);
    }
    Summaries result;
    for (const auto& [method, errors] : by_method) {
        result.by_method.push_back(summarise(std::string(to_string(method)), errors));
    }
    result.overall = summarise("all", all);
    return result;
}

void collect(std::vector<Unexpressed>& reasons, const Measurement& run) {
    auto found = std::find_if(reasons.begin(), reasons.end(),
                              [&](const Unexpressed& known) { return known.reason == run.not_expressed; });
    if (found == reasons.end()) found = reasons.insert(reasons.end(), Unexpressed{run.not_expressed, {}});
    found->ids.push_back(run.id);
}

}  // namespace

std::size_t Validation::count(Agreement agreement) const {
    return static_cast<std::size_t>(std::count_if(comparisons.begin(), comparisons.end(),
                                                  [&](const Comparison& row) { return row.agreement == agreement; }));
}

ErrorSummary summarise(const std::string& name, const std::vector<std::pair<double, std::string>>& errors) {
    ErrorSummary summary;
    summary.name = name;
    summary.count = errors.size();
    if (errors.empty()) return summary;
    std::vector<double> sorted;
    for (const auto& [error, id] : errors) {
        sorted.push_back(error);
        summary.mean_absolute += std::abs(error) / static_cast<double>(errors.size());
        if (summary.worst_id.empty() || std::abs(error) > std::abs(summary.worst)) {
            summary.worst = error;
            summary.worst_id = id;
        }
    }
    std::sort(sorted.begin(), sorted.end());
    const std::size_t middle = sorted.size() / 2;
    summary.median = sorted.size() % 2 == 1 ? sorted[middle] : (sorted[middle - 1] + sorted[middle]) / 2;
    return summary;
}

PaperSplit paper_split(const Plan& plan) {
    const Recipe& recipe = plan.recipe;
    const auto& precision = recipe.precision;
    const std::int64_t per_parameter = bytes_per_element(precision.parameters) +
                                       2 * bytes_per_element(precision.optimizer) +
                                       bytes_per_element(precision.reduction);
    PaperSplit split;
    split.states = {per_parameter * count_parameters(plan.model).total() / recipe.sharding.degree};
    split.attention = {4 * recipe.context.value * plan.model.head_dim};
    for (const MemoryPart& part : plan.device.parts) {
        if (part.group == Group::attention || part.group == Group::communication) split.attention += part.bytes;
    }
    split.other = plan.device.peak - split.states - split.attention;
    return split;
}

Bytes activations_at_peak(const Plan& plan) {
    Bytes sum;
    for (const MemoryPart& part : plan.device.parts) {
        if (is_activation(part.group)) sum += part.bytes;
    }
    return sum;
}

Validation validate(const std::vector<Measurement>& measurements, const BasisFor& basis_for) {
    Validation result;
    Forecaster forecaster(basis_for);
    for (const Measurement& run : measurements) {
        if (run.not_expressed.empty()) {
            result.comparisons.push_back(compare(run, forecaster));
        } else {
            collect(result.not_expressed, run);
        }
    }
    add_pair_hints(result.comparisons);
    for (const Comparison& row : result.comparisons) {
        if (row.measured.value && !row.predicted) ++result.without_prediction;
        if (!row.measured.value || !row.interval_low) continue;
        ++result.with_interval;
        if (*row.measured.value >= *row.interval_low && *row.measured.value <= *row.interval_high) {
            ++result.inside_interval;
        }
    }
    result.memory = summaries_of(result.comparisons, false);
    result.time = summaries_of(result.comparisons, true);
    std::stable_sort(result.not_expressed.begin(), result.not_expressed.end(),
                     [](const Unexpressed& a, const Unexpressed& b) { return a.ids.size() > b.ids.size(); });
    return result;
}

}  // namespace headroom
