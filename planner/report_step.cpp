// SPDX-License-Identifier: Apache-2.0
// The step time as text: one line to read first, then where the time goes.
#include <fmt/core.h>

#include <array>
#include <cmath>

#include "planner/report.hpp"
#include "reports/numbers.hpp"
#include "reports/table.hpp"

namespace headroom {

namespace {

/// A column of seconds: as many decimals as make four digits of the total.
std::string fixed_seconds(std::int64_t units, int decimals) {
    return fmt::format("{:.{}f}", static_cast<double>(units) / std::pow(10.0, decimals), decimals);
}

int decimals_for(double seconds) {
    if (seconds >= 100) return 2;
    return seconds >= 10 ? 3 : 4;
}

}  // namespace

std::string_view spoken(Part part) {
    static constexpr std::array<std::string_view, part_count> names{
        "attention",    "GEMM",       "memory-bound",   "head and loss", "all-to-all",
        "ring sending", "all-gather", "reduce-scatter", "host copies",   "host"};
    return names[static_cast<std::size_t>(part)];
}

std::string step_headline(const Plan& plan) {
    if (!plan.step) return "";
    const StepPrediction& step = *plan.step;
    return hanging(fmt::format("step: {} s ({} to {}), {} tokens/s/GPU ({} to {}), MFU {:.1f}%",
                               four_digits(step.time.seconds.value), four_digits(step.time.low.value),
                               four_digits(step.time.high.value), four_digits(step.tokens_per_second_per_gpu),
                               four_digits(step.tokens_per_second_per_gpu_low),
                               four_digits(step.tokens_per_second_per_gpu_high), 100 * step.mfu));
}

std::string step_section(const Plan& plan, const Style& style) {
    if (!plan.step) return "";
    const StepPrediction& step = *plan.step;
    const StepTime& time = step.time;
    const int decimals = decimals_for(time.seconds.value);
    const double unit = std::pow(10.0, decimals);

    std::vector<double> exposed, share;
    for (const PartTime& part : time.parts) {
        exposed.push_back(part.exposed.value * unit);
        share.push_back(100 * part.exposed.value / time.seconds.value);
    }
    const std::int64_t total = std::llround(time.seconds.value * unit);
    const std::vector<std::int64_t> shown = apportion_numbers(total, exposed);
    const std::vector<std::int64_t> percent = apportion_numbers(100, share);

    Table table({{"", Align::left},
                 {"exposed", Align::right},
                 {"share", Align::right},
                 {"busy", Align::right},
                 {"of it hidden", Align::right}});
    for (std::size_t i = 0; i < part_count; ++i) {
        const PartTime& part = time.parts[i];
        if (part.busy.value <= 0 && part.exposed.value <= 0) continue;
        const double hidden = part.busy.value - part.exposed.value;
        const bool some = std::llround(hidden * unit) > 0;
        table.row({std::string(spoken(static_cast<Part>(i))), fixed_seconds(shown[i], decimals),
                   fmt::format("{}%", percent[i]), fixed_seconds(std::llround(part.busy.value * unit), decimals),
                   some ? fmt::format("{:.0f}%", 100 * hidden / part.busy.value) : "-"});
    }
    table.row({"step", fixed_seconds(total, decimals), "100%"});

    std::string text =
        style.strong("Step time in seconds") +
        fmt::format(", rank {} of {}, which the others wait for\n", step.slowest_rank, plan.recipe.context_parallel());
    text += table.text(page_width, 2);
    text += "  exposed: nothing else runs meanwhile; busy: alone, over all streams\n";
    text += paragraph(fmt::format("{} tokens/s for the job of {} {}; HFU {:.1f}%, with all that is computed again",
                                  four_digits(step.tokens_per_second), plan.cluster.gpus(),
                                  plan.cluster.gpus() == 1 ? "GPU" : "GPUs", 100 * step.hfu),
                      "  ");
    text += paragraph("MFU: " + step.mfu_convention, "  ");
    text += paragraph(printable(fmt::format("constants: {} ({}){}", step.calibration.name, step.calibration.kind,
                                            warnings(step).empty() ? "" : "; see the warnings about the step time")),
                      "  ");
    return text;
}

}  // namespace headroom
