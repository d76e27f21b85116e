// SPDX-License-Identifier: Apache-2.0
// Cases that users of such tools reported (C01, C04, ...), one test each; user_cases_test.cpp checks that none is lost.
#pragma once

#include <doctest/doctest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "configs/inline.hpp"
#include "configs/load.hpp"
#include "configs/reader.hpp"
#include "models/error.hpp"
#include "planner/max_context.hpp"
#include "planner/plan.hpp"

namespace headroom {

/// Ids of all cases that have a test, in the order of registration.
inline std::vector<std::string>& tested_user_cases() {
    static std::vector<std::string> ids;
    return ids;
}
struct UserCase {
    explicit UserCase(const char* id) { tested_user_cases().emplace_back(id); }
};

// A macro because doctest's own registers a test by a macro.
#define USER_CASE(id, title)                                          \
    static const headroom::UserCase DOCTEST_ANONYMOUS(user_case){id}; \
    TEST_CASE(id ": " title)

/// Settings as typed after --set.
inline Settings settings_of(const std::vector<std::string>& assignments) {
    Settings settings;
    for (const std::string& assignment : assignments) set(settings, assignment);
    return settings;
}

/// A built-in model changed in some sizes, or the keys of a config.json.
inline Transformer model_of(const std::string& yaml) { return read_model(parse_yaml(yaml, "model.yaml"), "custom"); }
inline Cluster cluster_of(const std::string& yaml) { return read_cluster(parse_yaml(yaml, "lab.yaml"), "lab"); }

struct CaseBed {
    Transformer model = load_model("llama3-8b");
    Cluster cluster = load_cluster("h100-sxm-80gb");

    CaseBed& on(const std::string& name, int gpus = 8) {
        cluster = load_cluster(name);
        cluster.nodes = gpus > 8 ? gpus / 8 : 1;
        cluster.gpus_per_node = gpus > 8 ? 8 : gpus;
        return *this;
    }
    CaseBed& of(const std::string& name) {
        model = load_model(name);
        return *this;
    }
    CaseBed& of(const Transformer& shape) {
        model = shape;
        return *this;
    }

    Recipe recipe(const std::vector<std::string>& assignments) const {
        const Settings said = settings_of(assignments);
        return resolve(said, published_recipe(said.method.value()), model, cluster);
    }
    Plan plan(const std::vector<std::string>& assignments) const {
        return make_plan(model, cluster, recipe(assignments));
    }
    MaxContext longest(const std::vector<std::string>& assignments) const {
        const Settings said = settings_of(assignments);
        return max_context(said, published_recipe(said.method.value()), model, cluster);
    }
    /// "what | where | hint" of the rule that is broken; empty when it is none.
    std::string refusal(const std::vector<std::string>& assignments) const {
        try {
            recipe(assignments);
        } catch (const Error& error) {
            return std::string(error.what()) + " | " + error.where() + " | " + error.hint();
        }
        return {};
    }
};

inline bool says(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

/// Bytes of the parts at the peak whose name begins like this.
inline Bytes part_bytes(const Plan& plan, const std::string& name) {
    Bytes sum;
    for (const MemoryPart& part : plan.device.parts) {
        if (part.name.starts_with(name)) sum += part.bytes;
    }
    return sum;
}

/// A percentage with its sign.
inline double error_percent(double predicted, double expected) { return 100 * (predicted - expected) / expected; }

/// DeepSpeed ALST with Hugging Face models: ZeRO-3, optimizer on the host, nothing tiled or offloaded beside.
inline std::vector<std::string> alst(const std::string& context, const std::vector<std::string>& more = {}) {
    std::vector<std::string> all{"method=ulysses",          "implementation=alst",    "context=" + context,
                                 "sharding.strategy=zero3", "offload.optimizer=true", "offload.block_inputs=none",
                                 "tiling.norm=off",         "tiling.mlp=off",         "tiling.loss=off"};
    for (const std::string& assignment : more) {
        const std::string key = assignment.substr(0, assignment.find('=') + 1);
        for (std::string& known : all) {
            if (known.starts_with(key)) known = assignment;
        }
        if (std::find(all.begin(), all.end(), assignment) == all.end()) all.push_back(assignment);
    }
    return all;
}

}  // namespace headroom
