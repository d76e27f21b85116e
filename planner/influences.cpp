// SPDX-License-Identifier: Apache-2.0
// Which constants and settings move an answer most, and therefore what to calibrate or to try next.
#include <algorithm>
#include <cmath>

#include "models/constraints.hpp"
#include "models/error.hpp"
#include "models/training_step.hpp"
#include "planner/explain.hpp"
#include "planner/outside.hpp"
#include "planner/what_if.hpp"

namespace headroom {
namespace {

/// Exposed time by class, of the ring role that the step waits for.
Playback slowest(const Plan& plan, const Calibration& calibration, Evaluator& evaluator) {
    Playback found;
    for (const RingRole role : ring_roles(plan.recipe)) {
        build_training_step(make_workload(plan.model, plan.cluster, plan.recipe, role), evaluator.schedule);
        PlayOptions options;
        options.ring_overlap =
            calibration.attention[static_cast<std::size_t>(plan.recipe.attention_kernel)].ring_overlap;
        const Playback& played =
            evaluator.timeline.play(evaluator.schedule, calibration, topology(plan.recipe, plan.cluster),
                                    plan.recipe.attention_kernel, options);
        if (played.seconds > found.seconds) found = played;
    }
    return found;
}

void add_constants(const Plan& plan, const Calibration& calibration, std::vector<Influence>& list) {
    Evaluator evaluator;
    const Playback played = slowest(plan, calibration, evaluator);
    for (const Bias& bias : biases(calibration, plan.recipe.attention_kernel)) {
        double moved = 0;
        for (std::size_t c = 0; c < cost_class_count; ++c) {
            if ((bias.classes >> c) & 1U) moved += played.exposed[c];
        }
        if (moved == 0) continue;
        Influence influence;
        influence.name = bias.name;
        influence.slower = played.seconds / (played.seconds + moved * (bias.slow - 1)) - 1;
        influence.faster = played.seconds / (played.seconds - moved * (1 - bias.fast)) - 1;
        list.push_back(influence);
    }
}

/// Bytes outside the allocator are assumed or carried over on most machines: a tenth either way.
void add_machine(const Plan& plan, std::vector<Influence>& list) {
    for (const OutsideTerm& term : plan.device.outside) {
        Influence influence;
        influence.name = term.name;
        influence.margin_less = influence.margin_more = term.bytes / 10;
        list.push_back(influence);
    }
}

std::vector<Recipe> neighbours(const Plan& plan) {
    const Recipe& base = plan.recipe;
    const Offered choice = offered(base.method, base.implementation);
    std::vector<Recipe> list;
    const auto add = [&](auto change) {
        Recipe recipe = base;
        change(recipe);
        if (recipe == base) return;
        try {
            check(recipe, plan.model, plan.cluster);
            list.push_back(recipe);
        } catch (const Error&) {
            return;  // not a choice here
        }
    };
    for (const Placement& place : choice.placements) {
        add([&](Recipe& r) {
            r.checkpointing = place.checkpointing;
            r.offload.block_inputs = place.block_inputs;
        });
    }
    for (const StateChoice& states : choice.states) {
        add([&](Recipe& r) {
            r.sharding.strategy = states.strategy;
            r.offload.optimizer = states.optimizer_on_host;
            r.offload.parameters = states.parameters_on_host;
        });
    }
    for (const Tiling& tiling : choice.norm) add([&](Recipe& r) { r.tiling.norm = tiling; });
    for (const Tiling& tiling : choice.mlp) add([&](Recipe& r) { r.tiling.mlp = tiling; });
    for (const Tiling& tiling : choice.loss) add([&](Recipe& r) { r.tiling.loss = tiling; });
    for (const bool chunks : choice.chunks_on_host) add([&](Recipe& r) { r.offload.chunks = chunks; });
    add([](Recipe& r) { r.batch *= 2; });
    if (base.method == Method::upipe) {
        for (const int heads : valid_heads_per_stage(plan.model, base.ulysses)) {
            add([&](Recipe& r) { r.heads_per_stage = heads; });
        }
    }
    if (base.method == Method::fpdt) {
        add([](Recipe& r) { r.chunk_tokens = r.chunk_tokens * 2; });
        add([](Recipe& r) { r.chunk_tokens = r.chunk_tokens / 2; });
    }
    return list;
}

void add_settings(const Plan& plan, const Calibration& calibration, std::vector<Influence>& list) {
    Evaluator evaluator;
    const Bed bed{plan.model, plan.cluster, calibration, {0, 0}};
    const Candidate base = evaluate(evaluator, plan.recipe, bed);
    for (const Recipe& recipe : neighbours(plan)) {
        const Candidate other = evaluate(evaluator, recipe, bed);
        Influence influence;
        for (const Difference& difference : differences(plan.recipe, recipe)) {
            influence.name += (influence.name.empty() ? "" : ", ") + difference.key + "=" + difference.to;
        }
        influence.setting = true;
        const double speed = other.speed / base.speed - 1;
        (speed < 0 ? influence.slower : influence.faster) = speed;
        const Bytes change = other.evaluation.memory.device_peak - base.evaluation.memory.device_peak;
        (change.value > 0 ? influence.margin_less : influence.margin_more) = change.value > 0 ? change : -change;
        list.push_back(influence);
    }
}

template <class Size>
std::vector<Influence> strongest(std::vector<Influence> all, std::size_t count, Size size) {
    std::stable_sort(all.begin(), all.end(), [&](const Influence& a, const Influence& b) { return size(a) > size(b); });
    std::erase_if(all, [&](const Influence& influence) { return !(size(influence) > decltype(size(influence)){}); });
    if (all.size() > count) all.resize(count);
    return all;
}

}  // namespace

double Influence::speed_size() const { return std::max(std::abs(slower), std::abs(faster)); }

std::vector<Influence> influences(const Plan& plan, const Calibration& calibration) {
    std::vector<Influence> list;
    add_constants(plan, calibration, list);
    add_machine(plan, list);
    add_settings(plan, calibration, list);
    return list;
}

std::vector<Influence> strongest_on_speed(std::vector<Influence> all, std::size_t count) {
    return strongest(std::move(all), count, [](const Influence& influence) { return influence.speed_size(); });
}

std::vector<Influence> strongest_on_margin(std::vector<Influence> all, std::size_t count) {
    return strongest(std::move(all), count, [](const Influence& influence) { return influence.margin_size(); });
}

}  // namespace headroom
