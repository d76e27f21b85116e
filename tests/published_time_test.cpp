// SPDX-License-Identifier: Apache-2.0
// Step times against what others measured: Llama-3-8B on 8 H100 (Untied Ulysses, tokens/s per GPU) and single layers on
// two H200. The constants come from kernels and links alone; nothing here was used to make them.
#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <vector>

#include "configs/calibration.hpp"
#include "models/block.hpp"
#include "planner/evaluate.hpp"
#include "planner/step.hpp"
#include "tests/scenario.hpp"

namespace headroom {
namespace {

constexpr std::int64_t k128 = 131072, m1 = 1048576, m3 = 3145728;

struct Cell {
    Method method;
    std::int64_t context;
    double tokens_per_second_per_gpu;
    const char* reason = nullptr;  ///< physical, why it may be further off than the others
};

const std::array published{
    Cell{Method::native, k128, 1373.87},
    Cell{Method::native, m1, 249.85},
    Cell{Method::ring, k128, 2064.9},
    Cell{Method::ring, m1, 458.51},
    Cell{Method::ring, m3, 159.96},
    Cell{Method::ulysses, k128, 2320.47},
    Cell{Method::ulysses, m1, 475.33},
    Cell{Method::ulysses, m3, 162.41},
    Cell{Method::fpdt, k128, 1171.68,
         "half of the step is pageable host copies, and their rate with eight ranks copying is not measured"},
    Cell{Method::fpdt, m1, 382.42},
    Cell{Method::fpdt, m3, 153.48},
    Cell{Method::upipe, k128, 2281.05},
    Cell{Method::upipe, m1, 472.53},
    Cell{Method::upipe, m3, 166.32},
};

StepPrediction predicted(Method method, std::int64_t context) {
    const Scenario scenario(method, context);
    Evaluator evaluator;
    return predict(scenario.model, scenario.cluster, scenario.recipe(), calibration_for(scenario.cluster), evaluator);
}

double percent(double predicted_value, double measured) { return 100 * (predicted_value / measured - 1); }

/// a + b*S + c*S^2 through three points, S in units of 1M tokens.
struct Parts {
    double constant, linear, quadratic;
};
Parts through(const std::array<double, 3>& lengths, const std::array<double, 3>& seconds) {
    const auto [x0, x1, x2] = lengths;
    const double first = (seconds[1] - seconds[0]) / (x1 - x0);
    const double second = (seconds[2] - seconds[1]) / (x2 - x1);
    const double c = (second - first) / (x2 - x0);
    const double b = first - c * (x0 + x1);
    return {seconds[0] - b * x0 - c * x0 * x0, b, c};
}

}  // namespace

TEST_CASE("the published cells: each within 8% but for those with a reason, the median within 3%") {
    std::vector<double> errors;
    int covered = 0;
    for (const Cell& cell : published) {
        const StepPrediction step = predicted(cell.method, cell.context);
        const double error = percent(step.tokens_per_second_per_gpu, cell.tokens_per_second_per_gpu);
        const bool inside = step.tokens_per_second_per_gpu_low <= cell.tokens_per_second_per_gpu &&
                            cell.tokens_per_second_per_gpu <= step.tokens_per_second_per_gpu_high;
        covered += inside ? 1 : 0;
        errors.push_back(std::abs(error));
        MESSAGE(to_string(cell.method), " ", cell.context, ": ", step.tokens_per_second_per_gpu, " predicted, ",
                cell.tokens_per_second_per_gpu, " measured, ", error,
                std::string(inside ? " %" : " %, outside of the interval"));
        if (cell.reason == nullptr) CHECK(std::abs(error) < 8);
        CHECK(std::abs(error) < 35);
    }
    std::sort(errors.begin(), errors.end());
    const double median = (errors[6] + errors[7]) / 2;
    MESSAGE("median ", median, " %, interval covers ", covered, " of 14");
    CHECK(median < 3);
    CHECK(covered >= 13);
}

TEST_CASE("an exception is only listed while it is one") {
    for (const Cell& cell : published) {
        if (cell.reason == nullptr) continue;
        const double error =
            percent(predicted(cell.method, cell.context).tokens_per_second_per_gpu, cell.tokens_per_second_per_gpu);
        MESSAGE(to_string(cell.method), " ", cell.context, ": ", error, " %, ", std::string(cell.reason));
        CHECK(std::abs(error) >= 8);
    }
}

TEST_CASE("methods come in the published order where they differ by more than 3%") {
    for (const Cell& a : published) {
        for (const Cell& b : published) {
            if (a.context != b.context || a.reason != nullptr || b.reason != nullptr) continue;
            if (a.tokens_per_second_per_gpu <= 1.03 * b.tokens_per_second_per_gpu) continue;
            CAPTURE(to_string(a.method));
            CAPTURE(to_string(b.method));
            CAPTURE(a.context);
            CHECK(predicted(a.method, a.context).tokens_per_second_per_gpu >
                  predicted(b.method, b.context).tokens_per_second_per_gpu);
        }
    }
}

TEST_CASE("the part that grows with the square of the length is right within 3%") {
    // FPDT's short cell is the one with a reason: host copies that are too fast leave too little to the linear part,
    // and a parabola through the three cells puts it into the square. Its longest cell is within 2%.
    constexpr double fpdt_within = 7;
    for (const Method method : {Method::ring, Method::ulysses, Method::fpdt, Method::upipe}) {
        std::array<double, 3> lengths{}, measured{}, calculated{};
        std::size_t i = 0;
        for (const Cell& cell : published) {
            if (cell.method != method) continue;
            const double length = static_cast<double>(cell.context);
            lengths[i] = length / static_cast<double>(m1);
            measured[i] = length / 8 / cell.tokens_per_second_per_gpu;
            calculated[i] = predicted(method, cell.context).time.seconds.value;
            ++i;
        }
        REQUIRE(i == 3);
        const Parts was = through(lengths, measured);
        const Parts is = through(lengths, calculated);
        MESSAGE(to_string(method), ": constant ", is.constant, " s for ", was.constant, ", per 1M ", is.linear,
                " s for ", was.linear, ", per 1M squared ", is.quadratic, " s for ", was.quadratic, " (",
                percent(is.quadratic, was.quadratic), " %)");
        CHECK(std::abs(percent(is.quadratic, was.quadratic)) < (method == Method::fpdt ? fpdt_within : 3));
    }
}

// Two H200, FlashAttention-2, 131,072 tokens, untied-ulysses code without tokenising.

namespace {

Workload two_h200(Method method, int layers, HostPlace inputs) {
    Scenario scenario(method, k128);
    scenario.cluster = load_cluster("h200");
    scenario.cluster.gpus_per_node = 2;
    scenario.model.layers = layers;
    scenario.settings.attention_kernel = AttentionKernel::fa2;
    scenario.settings.offload_block_inputs = inputs;
    Workload work = scenario.workload();
    work.loads_data = false;
    return work;
}

double seconds_of(const Schedule& schedule, const Workload& work) {
    Cluster cluster = load_cluster("h200");
    cluster.gpus_per_node = 2;
    Timeline timeline;
    return predict_step(schedule, load_calibration("h200"), topology(work.recipe, cluster),
                        work.recipe.attention_kernel, timeline)
        .seconds.value;
}

double step_seconds(const Workload& work) {
    Schedule schedule;
    build_training_step(work, schedule);
    return seconds_of(schedule, work);
}

}  // namespace

TEST_CASE("whole steps on two H200, within 3%") {
    struct Run {
        Method method;
        int layers;
        HostPlace inputs;
        double seconds;
    };
    for (const Run& run :
         {Run{Method::ulysses, 2, HostPlace::pinned, 2.9105}, Run{Method::ulysses, 2, HostPlace::none, 2.8997},
          Run{Method::ulysses, 4, HostPlace::pinned, 5.3928}, Run{Method::ulysses, 4, HostPlace::none, 5.3575},
          Run{Method::upipe, 2, HostPlace::none, 3.0435}}) {
        const double error = percent(step_seconds(two_h200(run.method, run.layers, run.inputs)), run.seconds);
        MESSAGE(to_string(run.method), ", ", run.layers, " layers, inputs ", to_string(run.inputs), ": ", error, " %");
        CHECK(std::abs(error) < 3);
    }
    // The layer and the rest fail for different reasons.
    const double two = step_seconds(two_h200(Method::ulysses, 2, HostPlace::none));
    const double four = step_seconds(two_h200(Method::ulysses, 4, HostPlace::none));
    const double per_layer = (four - two) / 2;
    MESSAGE("per layer ", percent(per_layer, (5.3575 - 2.8997) / 2), " %, the rest ",
            percent(two - 2 * per_layer, 2 * 2.8997 - 5.3575), " %");
    CHECK(std::abs(percent(per_layer, (5.3575 - 2.8997) / 2)) < 3);
}

TEST_CASE("modules on two H200, within 3% but for the one with a reason") {
    const Workload work = two_h200(Method::ulysses, 1, HostPlace::none);
    const Traits traits = traits_of(work.recipe);
    std::vector<TensorId> gradients;
    /// Seconds of what `write` appends last, over what `before` needs.
    const auto seconds = [&](auto&& before, auto&& write) {
        const auto total = [&](bool whole) {
            Schedule schedule;
            Builder builder(schedule);
            Step step{builder, work, traits, gradients};
            gradients.clear();
            builder.segment("module", Phase::forward);
            before(step);
            if (whole) write(step);
            builder.finish();
            return seconds_of(schedule, work);
        };
        return total(true) - total(false);
    };
    const auto nothing = [](Step&) {};
    struct Module {
        const char* name;
        double predicted, measured;
        double within;
    };

    Kept kept;
    const auto attend = [&](Step& step) { kept = attention_forward(step, true); };
    const double attention = seconds(nothing, attend);
    const double attention_back = seconds(attend, [&](Step& step) { attention_backward(step, kept); });

    BlockKept block;
    TensorId gradient = no_tensor;
    const auto forward = [&](Step& step) {
        const TensorId output = step.to.reserve();
        block = {};
        block_forward(step, block, true, output, Group::residual);
    };
    const auto checkpointed = [&](Step& step) {
        const TensorId output = step.to.reserve();
        block = {};
        block_forward(step, block, false, output, Group::residual);
        gradient = step.to.allocate("gradient", Group::residual, work.hidden);
    };
    const auto backward = [&](Step& step) {
        gradient = step.to.allocate("gradient", Group::residual, work.hidden);
        block_backward(step, block, gradient);
    };
    const auto again = [&](Step& step) {
        block = {};
        block_forward(step, block, true, no_tensor, Group::residual);
        block_backward(step, block, gradient);
    };
    // The isolated block ran for a quarter of a second between pauses, so its products and attention kernels saw clocks
    // above the sustained ones that the constants hold.
    constexpr double cool = 4;
    for (const Module& module :
         {Module{"attention forward", attention, 0.2272, 3}, Module{"attention backward", attention_back, 0.5674, 3},
          Module{"block forward", seconds(nothing, forward), 0.2625, cool},
          Module{"block backward", seconds(forward, backward), 0.6999, 3},
          Module{"checkpointed block forward", seconds(nothing, checkpointed), 0.2643, 3},
          Module{"checkpointed block backward", seconds(checkpointed, again), 0.9827, 3}}) {
        const double error = percent(module.predicted, module.measured);
        MESSAGE(std::string(module.name), ": ", module.predicted, " s for ", module.measured, " s, ", error, " %");
        CHECK(std::abs(error) < module.within);
    }
}

}  // namespace headroom
