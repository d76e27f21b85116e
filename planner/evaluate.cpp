// SPDX-License-Identifier: Apache-2.0
#include "planner/evaluate.hpp"

#include <algorithm>
#include <array>

#include "models/training_step.hpp"
#include "planner/outside.hpp"

namespace headroom {

Bytes usable_host_memory(const Cluster& cluster) {
    return {static_cast<std::int64_t>(static_cast<double>(cluster.host_memory.value) * cluster.host_memory_usable)};
}

std::span<const RingRole> ring_roles(const Recipe& recipe) {
    static constexpr std::array roles{RingRole::later, RingRole::first};
    return std::span(roles).first(recipe.ring == 1 ? 1 : 2);
}

Evaluation Evaluator::read(const Transformer& model, const Cluster& cluster, const Recipe& recipe,
                           const Calibration* calibration) {
    Evaluation evaluation;
    Verdict& result = evaluation.memory;
    for (const RingRole role : ring_roles(recipe)) {
        build_training_step(make_workload(model, cluster, recipe, role), schedule);
        const MemoryProfile& profile = replay.run(schedule);
        result.device_peak = std::max(result.device_peak, profile.device_peak);
        const Bytes host = (profile.pinned_peak + profile.pageable_peak) * cluster.gpus_per_node;
        result.host_peak_per_node = std::max(result.host_peak_per_node, host);
        if (calibration == nullptr) continue;
        const StepTime step = predict_step(schedule, *calibration, topology(recipe, cluster), recipe.attention_kernel,
                                           timeline, evaluation.step.seconds);
        if (step.seconds > evaluation.step.seconds) evaluation.step = step;
    }
    result.device_fits = result.device_peak <= cluster.device_memory - outside_bytes(cluster, recipe);
    result.host_fits = result.host_peak_per_node <= usable_host_memory(cluster);
    return evaluation;
}

Verdict Evaluator::verdict(const Transformer& model, const Cluster& cluster, const Recipe& recipe) {
    return read(model, cluster, recipe, nullptr).memory;
}

Evaluation Evaluator::evaluate(const Transformer& model, const Cluster& cluster, const Recipe& recipe,
                               const Calibration& calibration) {
    return read(model, cluster, recipe, &calibration);
}

}  // namespace headroom
