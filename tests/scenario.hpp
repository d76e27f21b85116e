// SPDX-License-Identifier: Apache-2.0
// Built-in models and clusters under published recipes, replayed: what most planner tests start from.
#pragma once

#include <string>

#include "configs/load.hpp"
#include "models/training_step.hpp"
#include "planner/memory_replay.hpp"
#include "planner/plan.hpp"

namespace headroom {

struct Scenario {
    Transformer model = load_model("llama3-8b");
    Cluster cluster = load_cluster("h100-sxm-80gb");
    Settings settings;  ///< over the method's published recipe

    Scenario(Method method, std::int64_t context) {
        settings.method = method;
        settings.context = Tokens{context};
    }
    Scenario& with_model(const std::string& name) {
        model = load_model(name);
        return *this;
    }
    Scenario& with_nodes(int nodes) {
        cluster.nodes = nodes;
        return *this;
    }
    Scenario& with_gpus_per_node(int gpus) {
        cluster.gpus_per_node = gpus;
        return *this;
    }

    Recipe recipe() const { return resolve(settings, published_recipe(*settings.method), model, cluster); }
    Workload workload(RingRole role = RingRole::later) const { return make_workload(model, cluster, recipe(), role); }
    Plan plan() const { return make_plan(model, cluster, recipe()); }
};

/// The step of a workload, replayed.
struct Replayed {
    Schedule schedule;
    MemoryReplay replay;
    MemoryProfile profile;

    explicit Replayed(const Workload& work) {
        build_training_step(work, schedule);
        profile = replay.run(schedule);
    }

    /// Peak of one phase of the segment of this name ("first block", "middle blocks", ...).
    PhasePeak peak(const std::string& name, Phase phase) const {
        for (std::size_t i = 0; i < schedule.segments.size(); ++i) {
            const PhasePeak& found = profile.segments[i][static_cast<std::size_t>(phase)];
            if (schedule.segments[i].name == name && found.device.value > 0) return found;
        }
        return {};
    }
};

}  // namespace headroom
