// SPDX-License-Identifier: Apache-2.0
#include "planner/validate_hints.hpp"

#include <fmt/format.h>

#include <cmath>

#include "planner/setting_values.hpp"

namespace headroom {
namespace {

/// Within 15 %: other parts of the step blur the factor.
bool is_about(double value, double expected) { return std::abs(value / expected - 1) < 0.15; }

/// Settings by name, without those that spread the sequence over ranks.
bool same_apart_from_degrees(const Measurement& a, const Measurement& b) {
    Settings left = a.said, right = b.said;
    for (Settings* settings : {&left, &right}) {
        settings->method.reset();
        settings->context.reset();
        settings->ulysses.reset();
        settings->ring.reset();
        settings->heads_per_stage.reset();
        settings->sharding_degree.reset();
    }
    const auto values = setting_values(left), others = setting_values(right);
    for (std::size_t i = 0; i < values.size(); ++i) {
        if (values[i].value != others[i].value) return false;
    }
    return true;
}

double parameters_of(const Comparison& row) {
    return static_cast<double>(count_parameters(row.measured.model).total());
}

/// A larger model is cheaper: less memory, or less time, for the same tokens.
bool is_cheaper_though_larger(const Comparison& larger, const Comparison& smaller) {
    const Measurement& a = larger.measured;
    const Measurement& b = smaller.measured;
    if (a.metric.name != b.metric.name || !a.value || !b.value) return false;
    if (!same_recipe(a, b) || !same_machine(a.cluster, b.cluster)) return false;
    if (parameters_of(larger) < 1.2 * parameters_of(smaller)) return false;
    const bool rate =
        a.metric.figure == Figure::tokens_per_second || a.metric.figure == Figure::tokens_per_second_per_gpu;
    if (a.metric.figure == Figure::model_tflops) return false;  // more work for a larger model
    if (!is_memory(a.metric.figure) && !is_time(a.metric.figure)) return false;
    return rate ? *a.value > 1.1 * *b.value : *a.value < 0.9 * *b.value;
}

}  // namespace

bool same_machine(const Cluster& a, const Cluster& b) {
    return a.name == b.name && a.nodes == b.nodes && a.gpus_per_node == b.gpus_per_node &&
           a.host_memory == b.host_memory && a.device_memory == b.device_memory;
}

bool same_recipe(const Measurement& a, const Measurement& b, bool any_context) {
    const auto left = setting_values(a.said), right = setting_values(b.said);
    for (std::size_t i = 0; i < left.size(); ++i) {
        if (any_context && left[i].key == "context") continue;
        if (left[i].value != right[i].value) return false;
    }
    return true;
}

std::string activation_hint(const Comparison& row, const Plan& plan) {
    const Figure figure = row.measured.metric.figure;
    const int ranks = plan.recipe.context_parallel();
    if (figure != Figure::peak && figure != Figure::peak_allocated) return {};
    if (ranks < 2 || !row.measured.value) return {};
    const double activations = static_cast<double>(activations_at_peak(plan).value);
    const double fixed = static_cast<double>(plan.device.peak.value) - activations;
    const double measured = *row.measured.in_base_units() - fixed;
    // Where states decide, small errors of theirs would look like large ones of the activations.
    if (activations < fixed || measured <= 0) return {};
    const double factor = measured / activations;
    if (is_about(factor, ranks)) {
        return fmt::format(
            "activations are {:.1f} times those predicted, about the {} ranks: was the sequence split at "
            "all?",
            factor, ranks);
    }
    if (is_about(factor, 1.0 / ranks)) {
        return fmt::format("activations are 1/{:.1f} of those predicted, about 1/{}: are inputs split twice?",
                           1 / factor, ranks);
    }
    return {};
}

void add_pair_hints(std::vector<Comparison>& rows) {
    for (Comparison& row : rows) {
        for (const Comparison& other : rows) {
            const Measurement& a = row.measured;
            const Measurement& b = other.measured;
            const int ranks = row.recipe.context_parallel(), fewer = other.recipe.context_parallel();
            if (a.metric.figure == Figure::max_context && b.metric.figure == Figure::max_context && a.value &&
                b.value && a.model.name == b.model.name && a.cluster.name == b.cluster.name &&
                same_apart_from_degrees(a, b) && row.valid && other.valid && ranks > fewer &&
                *a.value <= 1.05 * *b.value) {
                row.notes.push_back(fmt::format("no longer than {} on {} rank{}: sequence parallelism had no effect",
                                                b.id, fewer, fewer == 1 ? "" : "s"));
            }
            if (is_cheaper_though_larger(other, row)) {
                row.notes.push_back(fmt::format(
                    "inconsistent with {}: the larger {} is cheaper in the same setting; compare loss and logits "
                    "settings, offload and swapping",
                    b.id, b.model.name));
            }
        }
    }
}

}  // namespace headroom
