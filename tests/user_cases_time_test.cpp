// SPDX-License-Identifier: Apache-2.0
// User cases that ask for the time of a step.
#include "configs/calibration.hpp"
#include "planner/evaluate.hpp"
#include "planner/step.hpp"
#include "tests/user_cases.hpp"

namespace headroom {
namespace {

StepPrediction step_of(const CaseBed& bed, const std::vector<std::string>& assignments) {
    Evaluator evaluator;
    return predict(bed.model, bed.cluster, bed.recipe(assignments), calibration_for(bed.cluster), evaluator);
}

}  // namespace

USER_CASE("C08", "twice the context on twice the GPUs takes 1.91 and 1.93 times as long") {
    // Attention is quadratic, GPUs double: 364, 696 and 1,346 s for 1M on 8, 2M on 16, 4M on 32.
    // The kernel is not stated; with cuDNN, which PyTorch prefers on Hopper, the times themselves come out too.
    const double measured[]{364, 696, 1346};
    double seconds[3];
    int gpus = 8;
    for (double& step : seconds) {
        step = step_of(CaseBed().of("qwen3-8b").on("h100-sxm-80gb", gpus),
                       {"method=native", "implementation=torchtitan", "attention_kernel=cudnn", "tiling.mlp=off",
                        "tiling.norm=off", "context=" + std::to_string(131072 * gpus)})
                   .time.seconds.value;
        gpus *= 2;
    }
    for (int i = 0; i < 3; ++i) CHECK(std::abs(error_percent(seconds[i], measured[i])) < 10);
    CHECK(std::abs(error_percent(seconds[1] / seconds[0], 1.91)) < 5);
    CHECK(std::abs(error_percent(seconds[2] / seconds[1], 1.93)) < 5);
}

USER_CASE("C109", "tokens a second, per GPU and of the job: a context-parallel group counts once") {
    // Two groups of four: S * batch * 2 / seconds for the job, an eighth of it per GPU.
    const StepPrediction step = step_of(CaseBed(), {"method=ulysses", "context=64K", "ulysses=4", "batch=3"});
    const double job = 65536.0 * 3 * 2 / step.time.seconds.value;
    CHECK(step.tokens_per_second == doctest::Approx(job));
    CHECK(step.tokens_per_second_per_gpu == doctest::Approx(job / 8));
}
USER_CASE("C111", "MFU names its convention, and counts half the square unless asked") {
    const CaseBed bed = CaseBed().of("llama2-7b");
    const Tokens context{131072};
    const double half = model_flops(bed.model, context, 1, AttentionCount::causal).attention;
    CHECK(model_flops(bed.model, context, 1, AttentionCount::full).attention == 2 * half);
    CHECK(half == doctest::Approx(6.0 * 32 * 4096 * 131072 * 131072));
    const StepPrediction step = step_of(bed, {"method=ulysses", "context=128K"});
    CHECK(step.mfu < 1);
    CHECK(step.mfu < step.hfu);  // hardware FLOPs count what is recomputed
    CHECK(says(step.mfu_convention, "causal"));
}
USER_CASE("C112", "FLOPs of llama2-7b, batch 4, at 8,192 and 129,024 tokens") {
    const auto tera = [](std::int64_t context, AttentionCount count) {
        const ModelFlops flops = model_flops(load_model("llama2-7b"), Tokens{context}, 4, count);
        return std::pair{flops.weights / 1e12, flops.attention / 1e12};
    };
    CHECK(tera(8192, AttentionCount::causal).first == doctest::Approx(1299.00).epsilon(5e-6));
    CHECK(tera(8192, AttentionCount::full).second == doctest::Approx(422.21).epsilon(1e-5));
    CHECK(tera(8192, AttentionCount::causal).second == doctest::Approx(211.11).epsilon(3e-5));
    CHECK(tera(129024, AttentionCount::causal).first == doctest::Approx(20459.32).epsilon(1e-6));
    CHECK(tera(129024, AttentionCount::full).second == doctest::Approx(104735.08).epsilon(1e-6));
    CHECK(tera(129024, AttentionCount::causal).second == doctest::Approx(52367.54).epsilon(1e-6));
}

}  // namespace headroom
