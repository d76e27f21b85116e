// SPDX-License-Identifier: Apache-2.0
#include "planner/step.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "models/error.hpp"
#include "models/training_step.hpp"
#include "planner/evaluate.hpp"
#include "simulator/rates.hpp"

namespace headroom {
namespace {

std::string convention(AttentionCount count, const Cluster& cluster) {
    return fmt::format("model FLOPs, {}, recompute excluded, over {:.4g} TFLOP/s of dense bf16",
                       count == AttentionCount::causal ? "causal attention counted half" : "attention counted full",
                       cluster.peak_bf16.value / 1e12);
}

void refuse_above_peak(const StepPrediction& step, AttentionCount count) {
    if (step.mfu <= 1) return;
    const std::string what = fmt::format("the MFU would be {:.0f}% ({})", 100 * step.mfu, step.mfu_convention);
    if (count == AttentionCount::full) {
        throw Error(what, "--mfu full", "--mfu causal counts only what a causal kernel computes");
    }
    throw Error(what, "--calibration " + step.calibration.name,
                "its rates exceed the cluster's peak_bf16: correct one of them, or leave out --calibration");
}

std::string doubt(const Calibration& calibration, const Cluster& cluster) {
    if (calibration.kind == "derived") {
        return fmt::format("step time: the constants of {} are derived from another machine's, not measured",
                           calibration.name);
    }
    const auto& machines = calibration.machines;
    if (std::find(machines.begin(), machines.end(), cluster.name) != machines.end()) return "";
    return fmt::format("step time: calibration {} was made for {}, not for {}", calibration.name,
                       fmt::join(machines, ", "), cluster.name);
}

}  // namespace

std::optional<AttentionKernel> kernel_instead(const TimeBasis& basis) {
    if (!basis.calibration) return std::nullopt;
    const auto known = [&](AttentionKernel kernel) {
        return basis.calibration->attention[static_cast<std::size_t>(kernel)].known();
    };
    using enum AttentionKernel;
    if (known(fa2) && known(fa3)) return std::nullopt;
    for (const AttentionKernel kernel : {fa3, fa2, cudnn}) {
        if (known(kernel)) return kernel;
    }
    return std::nullopt;
}

std::string kernel_remark(const TimeBasis& basis) {
    const auto kernel = kernel_instead(basis);
    if (!kernel) return {};
    return fmt::format(
        "calibration {} has no rates for {}, so attention is planned with {}; --attention-kernel says "
        "otherwise",
        basis.calibration->name, *kernel == AttentionKernel::fa3 ? "fa2" : "fa3", to_string(*kernel));
}

std::string domain_warning(std::uint32_t domain) {
    if (domain == 0) return "";
    return fmt::format("step time outside of what was measured: {}", fmt::join(describe_domain(domain), "; "));
}

std::vector<std::string> warnings(const StepPrediction& step) {
    std::vector<std::string> list;
    if (!step.doubt.empty()) list.push_back(step.doubt);
    if (step.time.domain != 0) list.push_back(domain_warning(step.time.domain));
    return list;
}

double executed_flops(const Schedule& schedule) {
    double total = 0;
    for (const Segment& segment : schedule.segments) {
        for_each_written(schedule, segment, [&](const Event& event, std::int64_t times) {
            if (event.kind == EventKind::gemm) {
                const Gemm& gemm = event.gemm;
                total += static_cast<double>(times) * 2.0 * static_cast<double>(gemm.m) * static_cast<double>(gemm.n) *
                         static_cast<double>(gemm.k) * gemm.count;
            } else if (event.kind == EventKind::attention) {
                total += static_cast<double>(times) * attention_flops(event.attention);
            }
        });
    }
    return total;
}

StepPrediction predict(const Transformer& model, const Cluster& cluster, const Recipe& recipe,
                       const Calibration& calibration, Evaluator& evaluator, AttentionCount count) {
    StepPrediction step;
    double executed = 0;
    for (const RingRole role : ring_roles(recipe)) {
        build_training_step(make_workload(model, cluster, recipe, role), evaluator.schedule);
        StepTime time = predict_step(evaluator.schedule, calibration, topology(recipe, cluster),
                                     recipe.attention_kernel, evaluator.timeline, step.time.seconds);
        if (time.seconds <= step.time.seconds) continue;
        step.time = time;
        step.role = role;
        executed = executed_flops(evaluator.schedule);
    }
    step.slowest_rank = step.role == RingRole::first || recipe.ring == 1 ? 0 : recipe.ulysses;

    const double seconds = step.time.seconds.value;
    // The tokens of a group count once, however many ranks share them.
    const double tokens = static_cast<double>(recipe.context.value * recipe.batch);
    const double per_gpu = tokens / recipe.context_parallel();
    step.tokens_per_second_per_gpu = per_gpu / seconds;
    step.tokens_per_second_per_gpu_low = per_gpu / step.time.high.value;
    step.tokens_per_second_per_gpu_high = per_gpu / step.time.low.value;
    step.tokens_per_second = step.tokens_per_second_per_gpu * cluster.gpus();

    const double available = seconds * cluster.peak_bf16.value;
    step.mfu = model_flops(model, recipe.context, recipe.batch, count).total() / recipe.context_parallel() / available;
    step.hfu = executed / available;
    step.mfu_convention = convention(count, cluster);
    step.calibration = {calibration.name, calibration.kind};
    step.doubt = doubt(calibration, cluster);
    refuse_above_peak(step, count);
    return step;
}

}  // namespace headroom
