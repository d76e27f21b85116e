// SPDX-License-Identifier: Apache-2.0
// How long one training step takes, what that means in tokens and in share of the GPUs' peak, and what it rests on.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "models/cluster.hpp"
#include "models/model_flops.hpp"
#include "models/recipe.hpp"
#include "models/workload.hpp"
#include "simulator/step_time.hpp"

namespace headroom {

struct Evaluator;

struct CalibrationName {
    std::string name;
    std::string kind;  ///< measured, published, derived
};

struct StepPrediction {
    StepTime time;                    ///< of the rank that the others wait for
    RingRole role = RingRole::later;  ///< of that rank
    int slowest_rank = 0;             ///< context-parallel rank

    double tokens_per_second = 0;          ///< of the job; the ranks of a context-parallel group share their tokens
    double tokens_per_second_per_gpu = 0;  ///< S * batch * groups / seconds / GPUs
    double tokens_per_second_per_gpu_low = 0, tokens_per_second_per_gpu_high = 0;

    double mfu = 0;  ///< share of the datasheet's dense bf16 peak
    double hfu = 0;  ///< the same for all products the slowest rank executes, recomputed ones too
    std::string mfu_convention;

    CalibrationName calibration;
    std::string doubt;  ///< constants that were carried over from another machine; empty when they are its own
};

/// What step times rest on.
struct TimeBasis {
    std::optional<Calibration> calibration;  ///< none: no times are asked for
    AttentionCount count = AttentionCount::causal;
};

/// The kernel to plan with where none is said and the constants lack a published one, FlashAttention-2 or -3: that they
/// do not run on the machine. Nothing where they have both, or nothing at all.
std::optional<AttentionKernel> kernel_instead(const TimeBasis& basis);
/// "calibration b200 has no rates for fa3, so attention is planned with fa2"; empty where nothing is put instead.
std::string kernel_remark(const TimeBasis& basis);

/// Throws Error when an MFU above 100 % shows that convention or constants cannot be right, and when the calibration
/// has no rates for the recipe's attention kernel.
StepPrediction predict(const Transformer& model, const Cluster& cluster, const Recipe& recipe,
                       const Calibration& calibration, Evaluator& evaluator,
                       AttentionCount count = AttentionCount::causal);

/// Sentences for the doubt and for what was never measured like this; none when the prediction is on safe ground.
std::vector<std::string> warnings(const StepPrediction& step);
/// The one for bits of Domain; empty for none.
std::string domain_warning(std::uint32_t domain);

/// Floating-point operations of all matrix products and attention kernels of a schedule.
double executed_flops(const Schedule& schedule);

}  // namespace headroom
