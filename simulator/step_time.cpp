// SPDX-License-Identifier: Apache-2.0
#include "simulator/step_time.hpp"

#include <algorithm>
#include <cmath>
#include <string>

#include "models/error.hpp"

namespace headroom {

namespace {

template <class... Classes>
constexpr std::uint32_t classes(Classes... cost_classes) {
    return ((1U << static_cast<unsigned>(cost_classes)) | ...);
}

Bias of_rate(std::string_view name, std::uint32_t moved, const Constant& rate) {
    return {name, moved, rate.value / rate.high, rate.value / rate.low};
}

Bias of_duration(std::string_view name, std::uint32_t moved, const Constant& duration) {
    return {name, moved, duration.low / duration.value, duration.high / duration.value};
}

StepTime predict(const Schedule& schedule, const Calibration& calibration, const Topology& topology,
                 AttentionKernel kernel, Timeline& timeline, Seconds slower_than, std::vector<Slice>* slices) {
    check(calibration, kernel);
    const Overlap overlap = calibration.attention[static_cast<std::size_t>(kernel)].ring_overlap;
    PlayOptions options;
    options.ring_overlap = overlap;
    options.slices = slices;
    const Playback main = timeline.play(schedule, calibration, topology, kernel, options);

    StepTime step;
    step.seconds = {main.seconds};
    if (step.seconds <= slower_than) return step;
    step.domain = main.domain;
    for (std::size_t c = 0; c < cost_class_count; ++c) {
        PartTime& part = step.parts[static_cast<std::size_t>(part_of(static_cast<CostClass>(c)))];
        part.busy.value += main.busy[c];
        part.exposed.value += main.exposed[c];
    }

    double otherwise = main.seconds;
    if (main.ring_under_attention > 0) {
        options.ring_overlap = overlap == Overlap::hidden ? Overlap::serialised : Overlap::hidden;
        options.slices = nullptr;
        otherwise = timeline.play_again(options).seconds;
    }
    step.ring_hidden = {overlap == Overlap::hidden ? main.seconds : otherwise};
    step.ring_serialised = {overlap == Overlap::hidden ? otherwise : main.seconds};

    double faster = std::pow(std::max(0.0, main.seconds - otherwise), 2);
    double slower = std::pow(std::max(0.0, otherwise - main.seconds), 2);
    for (const Bias& bias : biases(calibration, kernel)) {
        double moved = 0;
        for (std::size_t c = 0; c < cost_class_count; ++c) {
            if ((bias.classes >> c) & 1U) moved += main.exposed[c];
        }
        faster += std::pow(moved * (1.0 - bias.fast), 2);
        slower += std::pow(moved * (bias.slow - 1.0), 2);
    }
    step.low = {main.seconds - std::sqrt(faster)};
    step.high = {main.seconds + std::sqrt(slower)};
    return step;
}

}  // namespace

void check(const Calibration& calibration, AttentionKernel kernel) {
    if (calibration.attention[static_cast<std::size_t>(kernel)].known()) return;
    std::string known;
    for (std::size_t i = 0; i < calibration.attention.size(); ++i) {
        if (!calibration.attention[i].known()) continue;
        if (!known.empty()) known += " or ";
        known += attention_kernel_names[i];
    }
    throw Error(
        "calibration " + calibration.name + " has no rates for attention kernel " + std::string(to_string(kernel)),
        "attention_kernel", "use --attention-kernel " + known + ", or another --calibration");
}

std::array<Bias, bias_count> biases(const Calibration& calibration, AttentionKernel kernel) {
    using enum CostClass;
    const auto& curves = calibration.attention[static_cast<std::size_t>(kernel)].curves;
    const AttentionCurve& curve = curves[0][1].known() ? curves[0][1] : curves[0][0];
    const auto link = [&](CollectiveKind kind) -> const Constant& {
        return calibration.links[static_cast<std::size_t>(kind)].rate;
    };
    return {of_rate("attention rate", classes(attention), curve.asymptote),
            of_rate("GEMM rate", classes(gemm, loss_gemm), calibration.gemm.points.back().rate),
            of_rate("memory rate", classes(memory_bound, loss_memory), calibration.memory.copy_rate),
            of_rate("all-to-all inside a node", classes(all_to_all), link(CollectiveKind::all_to_all)),
            of_rate("rings inside a node", classes(ring, all_gather, reduce_scatter), link(CollectiveKind::send_recv)),
            of_rate("NIC rate", classes(all_to_all_across, ring_across), calibration.across_nodes.nic_rate),
            of_rate("rings across nodes", classes(all_gather_across, reduce_scatter_across),
                    calibration.across_nodes.ring_rate),
            of_rate("pinned copies", classes(copy_pinned), calibration.host.all_gpus),
            of_rate("pageable copies", classes(copy_pageable), calibration.host.pageable_fresh),
            of_duration("gaps after host waits", classes(host_gap), calibration.host.after_wait),
            of_duration("host work", classes(host_work), calibration.host.tokenise)};
}

StepTime predict_step(const Schedule& schedule, const Calibration& calibration, const Topology& topology,
                      AttentionKernel kernel, Timeline& timeline, Seconds slower_than) {
    return predict(schedule, calibration, topology, kernel, timeline, slower_than, nullptr);
}

StepTime predict_step(const Schedule& schedule, const Calibration& calibration, const Topology& topology,
                      AttentionKernel kernel, Timeline& timeline, std::vector<Slice>& slices) {
    slices.clear();
    return predict(schedule, calibration, topology, kernel, timeline, {-1}, &slices);
}

}  // namespace headroom
