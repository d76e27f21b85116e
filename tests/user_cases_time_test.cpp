// SPDX-License-Identifier: Apache-2.0
// User cases that ask for the time of a step.
#include "configs/calibration.hpp"
#include "models/training_step.hpp"
#include "simulator/step_time.hpp"
#include "tests/user_cases.hpp"

namespace headroom {
namespace {

double step_seconds(const Bed& bed, const std::vector<std::string>& assignments) {
    const Recipe recipe = bed.recipe(assignments);
    Schedule schedule;
    build_training_step(make_workload(bed.model, bed.cluster, recipe), schedule);
    Timeline timeline;
    return predict_step(schedule, calibration_for(bed.cluster), topology(recipe, bed.cluster), recipe.attention_kernel,
                        timeline)
        .seconds.value;
}

}  // namespace

USER_CASE("C08", "twice the context on twice the GPUs takes 1.91 and 1.93 times as long") {
    // Attention is quadratic, GPUs double: 364, 696 and 1,346 s for 1M on 8, 2M on 16, 4M on 32.
    // The kernel is not stated; with cuDNN, which PyTorch prefers on Hopper, the times themselves come out too.
    const double measured[]{364, 696, 1346};
    double seconds[3];
    int gpus = 8;
    for (double& step : seconds) {
        step = step_seconds(Bed().of("qwen3-8b").on("h100-sxm-80gb", gpus),
                            {"method=native", "implementation=torchtitan", "attention_kernel=cudnn", "tiling.mlp=off",
                             "tiling.norm=off", "context=" + std::to_string(131072 * gpus)});
        gpus *= 2;
    }
    for (int i = 0; i < 3; ++i) CHECK(std::abs(error_percent(seconds[i], measured[i])) < 10);
    CHECK(std::abs(error_percent(seconds[1] / seconds[0], 1.91)) < 5);
    CHECK(std::abs(error_percent(seconds[2] / seconds[1], 1.93)) < 5);
}

}  // namespace headroom
