// SPDX-License-Identifier: Apache-2.0
// Everything a report compares: each method's longest context, its memory and speed over contexts, what chunk sizes
// do, and one block's timeline. Values only; report_html.cpp makes a page of them.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "models/settings.hpp"
#include "planner/layer_timeline.hpp"
#include "planner/max_context.hpp"
#include "planner/plan.hpp"

namespace headroom {

/// One configuration of a curve.
struct StudyPoint {
    Tokens context;
    std::int64_t chunk = 0;  ///< heads per stage or chunk tokens, in a curve over those
    Bytes need;              ///< on the device, worst rank: allocated, stuck in the cache, and outside the allocator
    bool fits = false;       ///< device and host
    std::optional<StepPrediction> step;
};

struct MethodStudy {
    Method method{};
    MaxContext longest;
    std::vector<StudyPoint> curve;  ///< by context, up to one point that does not fit
    std::optional<Plan> at_focus;
    std::string refusal;  ///< the rule that keeps it from running at the focus context
};

struct Study {
    Transformer model;
    Cluster cluster;
    std::optional<Calibration> calibration;
    Tokens focus;             ///< the context that methods are compared at
    bool focus_said = false;  ///< by the user, not chosen here
    std::size_t chosen = 0;   ///< index of the method that is shown in detail
    bool method_said = false;
    std::vector<MethodStudy> methods;    ///< that can run here at all, in the order of Method
    std::vector<MethodStudy> refused;    ///< that cannot
    std::vector<StudyPoint> stages;      ///< upipe over heads per stage, at the focus context
    std::vector<StudyPoint> chunks;      ///< fpdt over chunk tokens
    std::int64_t stage = 0, chunk = 0;   ///< those of the recipes
    std::optional<LayerTimeline> layer;  ///< of the chosen method
};

/// `said` may name a method and a context; what belongs to one method alone then counts for it and no other.
/// Throws Error when the said method cannot run, or no method can.
Study make_study(const Transformer& model, const Cluster& cluster, const Settings& said,
                 const std::function<Settings(Method)>& published, const TimeBasis& basis);

}  // namespace headroom
