// SPDX-License-Identifier: Apache-2.0
// One point of a grid: resolved, replayed and timed.
#include <fmt/format.h>

#include "models/error.hpp"
#include "models/model_flops.hpp"
#include "models/shipped.hpp"
#include "planner/outside.hpp"
#include "planner/search.hpp"
#include "planner/sweep.hpp"

namespace headroom {
namespace {

SweepSpeed speed_of(const SweepRow& row, const StepTime& step, AttentionCount count) {
    const Recipe& recipe = row.recipe;
    const auto speed = [&](Seconds seconds) { return tokens_per_second_per_gpu(recipe, seconds); };
    const double flops =
        model_flops(*row.model, recipe.context, recipe.batch, count).total() / recipe.context_parallel();
    return {step.seconds,
            step.low,
            step.high,
            speed(step.seconds),
            speed(step.high),
            speed(step.low),
            flops / (step.seconds.value * row.cluster->peak_bf16.value),
            step.domain};
}

std::string shortage(const SweepRow& row, bool sticks) {
    if (row.device_peak > row.device_usable) {
        return fmt::format("{:.2f} GiB short on the GPU", in_gib(row.device_peak - row.device_usable));
    }
    if (row.host_peak_per_node > row.host_usable_per_node) {
        return fmt::format("{:.2f} GiB short on the host", in_gib(row.host_peak_per_node - row.host_usable_per_node));
    }
    return sticks ? "what sticks in the allocator does not fit" : "";
}

}  // namespace

SweepRow evaluate_row(const Grid& grid, const std::vector<TimeBasis>& bases, std::int64_t index, Evaluator& evaluator) {
    const Grid::Point point = grid.point(index);
    const Transformer& model = *point.model;
    const Cluster& cluster = *point.cluster;
    const TimeBasis& basis = bases[static_cast<std::size_t>(point.cluster - grid.clusters.data())];
    SweepRow row;
    row.index = index;
    row.model = point.model;
    row.cluster = point.cluster;
    row.said = point.said;
    const auto method = point.said.method.value_or(Method::upipe);
    try {
        Settings said = point.said;
        said.method = method;
        if (!said.attention_kernel) said.attention_kernel = kernel_instead(basis);
        row.recipe = resolve(said, grid.published[static_cast<std::size_t>(method)], model, cluster);
    } catch (const Error& error) {
        row.status = SweepStatus::invalid;
        row.reason = error.what();
        return row;
    }
    const Recipe& recipe = row.recipe;
    row.beyond_shipped_code = beyond_shipped_code(recipe, cluster);
    row.device_usable = cluster.device_memory - outside_bytes(cluster, recipe);
    row.host_usable_per_node = usable_host_memory(cluster);
    const bool timed =
        basis.calibration && basis.calibration->attention[static_cast<std::size_t>(recipe.attention_kernel)].known();
    Evaluation evaluation;
    if (timed) {
        evaluation = evaluator.evaluate(model, cluster, recipe, *basis.calibration);
        row.speed = speed_of(row, evaluation.step, basis.count);
    } else {
        evaluation.memory = evaluator.verdict(model, cluster, recipe);
    }
    row.device_peak = evaluation.memory.device_peak;
    row.host_peak_per_node = evaluation.memory.host_peak_per_node;
    // What sticks in the allocator is a small part of the device: only a tight fit depends on it.
    constexpr double tight = 0.85;
    const bool close =
        static_cast<double>(row.device_peak.value) > tight * static_cast<double>(row.device_usable.value);
    bool sticks = false;
    if (evaluation.memory.fits() && close) {
        static const Calibration no_constants;
        sticks = !holds(evaluator, recipe, {model, cluster, no_constants, {0, 0}});
    }
    const bool fit = evaluation.memory.fits() && !sticks;
    row.status = fit ? SweepStatus::fits : SweepStatus::does_not_fit;
    if (!fit) row.reason = shortage(row, sticks);
    return row;
}

}  // namespace headroom
