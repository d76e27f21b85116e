// SPDX-License-Identifier: Apache-2.0
// The page as a whole: the verdict first.
#include "planner/report_html.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "planner/report.hpp"
#include "reports/numbers.hpp"

namespace headroom {
namespace {

const MethodStudy& chosen(const Study& study) { return study.methods[study.chosen]; }

std::string verdict(const Study& study) {
    const MethodStudy& method = chosen(study);
    const std::string what = fmt::format("{} at {}", display_name(method.method), tokens_in_words(study.focus));
    if (!method.at_focus) return fmt::format("{} cannot run: {}.", what, method.refusal);
    std::string text = fmt::format("{} {}", what, method.at_focus->verdict);
    if (method.at_focus->fits && method.at_focus->step) {
        text += fmt::format("; {} tokens/s per GPU", speed_with_range(*method.at_focus->step));
    }
    return text + ".";
}

std::string why_chosen(const Study& study) {
    if (study.method_said) return "";
    const MethodStudy& method = chosen(study);
    const bool fits = method.at_focus && method.at_focus->fits;
    if (!fits) return " No method fits there.";
    return fmt::format(" {} is shown in detail: it is the fastest that fits there.", display_name(method.method));
}

std::string reach(const Study& study) {
    std::vector<const MethodStudy*> methods;
    for (const MethodStudy& method : study.methods) {
        if (method.longest.context.value > 0) methods.push_back(&method);
    }
    std::stable_sort(methods.begin(), methods.end(),
                     [](auto* a, auto* b) { return a->longest.context > b->longest.context; });
    if (methods.empty()) return "No method fits any context here.";
    std::vector<std::string> items;
    for (const MethodStudy* method : methods) {
        items.push_back(
            fmt::format("{} {}", display_name(method->method), approximate_tokens(method->longest.context)));
    }
    return fmt::format("Longest contexts that fit: {}.", listed(items));
}

std::vector<HtmlPage::Fact> facts(const Study& study) {
    std::vector<HtmlPage::Fact> list;
    const MethodStudy& method = chosen(study);
    const auto longest = std::max_element(study.methods.begin(), study.methods.end(),
                                          [](auto& a, auto& b) { return a.longest.context < b.longest.context; });
    if (longest->longest.context.value > 0) {
        list.push_back({"Longest context", approximate_tokens(longest->longest.context) + " tokens",
                        fmt::format("{}, {} exactly", display_name(longest->method),
                                    with_separators(longest->longest.context.value))});
    }
    if (!method.at_focus) return list;
    const Plan& plan = *method.at_focus;
    const std::string where = fmt::format("{} at {}", display_name(method.method), short_tokens(study.focus));
    const Bytes need = plan.device.peak + plan.device.unreturnable;
    list.push_back({"GPU memory, " + where, gib(need) + " GiB",
                    fmt::format("of {} GiB that the allocator can have; worst rank", gib(plan.device.usable))});
    list.push_back({"Host memory per node", three_digits(in_gib(plan.host.peak_per_node)) + " GiB",
                    fmt::format("of {} GiB for training", three_digits(in_gib(plan.host.usable_per_node)))});
    if (!plan.step) return list;
    const StepPrediction& step = *plan.step;
    list.push_back(
        {"Speed, " + where, three_digits(step.tokens_per_second_per_gpu) + " tokens/s per GPU",
         fmt::format("{} to {}; {} for the job", three_digits(step.tokens_per_second_per_gpu_low),
                     three_digits(step.tokens_per_second_per_gpu_high), three_digits(step.tokens_per_second))});
    list.push_back({"One training step", duration(step.time.seconds),
                    fmt::format("{} to {}", duration(step.time.low), duration(step.time.high))});
    list.push_back({"MFU", fmt::format("{:.1f}%", 100 * step.mfu), step.mfu_convention});
    return list;
}

std::vector<std::string> lead(const Study& study) {
    std::vector<std::string> paragraphs{reach(study)};
    std::string compared = fmt::format("Methods are compared at {}", tokens_in_words(study.focus));
    compared += study.focus_said || study.method_said ? "." : ", which half of them reach.";
    paragraphs.push_back(compared + why_chosen(study));
    return paragraphs;
}

}  // namespace

std::string machine(const Cluster& cluster) {
    if (cluster.nodes == 1) return fmt::format("{} GPUs of {}", cluster.gpus(), cluster.name);
    return fmt::format("{} GPUs of {} ({} nodes)", cluster.gpus(), cluster.name, cluster.nodes);
}

std::string display_name(Method method) {
    static constexpr std::array names{"Native CP", "Ring", "Ulysses", "USP", "FPDT", "UPipe"};
    return names[static_cast<std::size_t>(method)];
}

std::string display_name(Part part) {
    static constexpr std::array names{
        "attention kernels", "matrix products",   "memory-bound kernels", "loss and head", "all-to-all",
        "ring transfers",    "gathering weights", "reducing gradients",   "host copies",   "launches and waits"};
    static_assert(names.size() == part_count);
    return names[static_cast<std::size_t>(part)];
}

Colour colour_of(Method method) { return {Colour::Family::series, static_cast<int>(method)}; }

Colour colour_of(Part part) {
    // Gathering and reducing share a colour: both are the price of sharded states, and they never stand side by side
    // with anything else of that colour.
    static constexpr std::array slots{2, 0, 1, 4, 3, 5, 6, 6, 7, 8};
    static_assert(slots.size() == part_count);
    return {Colour::Family::part, slots[static_cast<std::size_t>(part)]};
}

std::string tokens_in_words(Tokens tokens) {
    const std::string brief = short_tokens(tokens);
    const std::string exact = with_separators(tokens.value);
    return brief == exact ? exact + " tokens" : fmt::format("{} ({}) tokens", brief, exact);
}

std::string three_digits(double value) {
    if (value >= 99.95) return with_separators(std::llround(value));
    return fmt::format("{:.{}f}", value, value >= 9.995 ? 1 : 2);
}

std::string speed_with_range(const StepPrediction& step) {
    return fmt::format("{} ({} to {})", three_digits(step.tokens_per_second_per_gpu),
                       three_digits(step.tokens_per_second_per_gpu_low),
                       three_digits(step.tokens_per_second_per_gpu_high));
}

std::string listed(const std::vector<std::string>& items) {
    std::string text;
    for (std::size_t i = 0; i < items.size(); ++i) {
        if (i > 0) text += i + 1 == items.size() ? " and " : ", ";
        text += items[i];
    }
    return text;
}

Axis token_axis(const std::string& title, Tokens least, Tokens most) {
    Axis axis{title, true, static_cast<double>(least.value) / 1.15, static_cast<double>(most.value) * 1.15, {}};
    for (std::int64_t context = 1; context <= most.value; context *= 2) {
        if (context < least.value) continue;
        axis.ticks.emplace_back(static_cast<double>(context), short_tokens({context}));
    }
    return axis;
}

Bytes needed(const Plan& plan) { return plan.device.peak + plan.device.unreturnable + plan.device.outside_allocator; }

HtmlPage report_page(const Study& study, const ReportOrigin& origin, const Validation* validation) {
    HtmlPage page;
    page.title = fmt::format("{} on {}", study.model.name, machine(study.cluster));
    page.verdict = verdict(study);
    const MethodStudy& method = chosen(study);
    page.good = method.at_focus && method.at_focus->fits;
    page.lead = lead(study);
    page.facts = facts(study);
    if (method.at_focus) page.notes = method.at_focus->warnings;
    page.sections.push_back(longest_section(study));
    page.sections.push_back(memory_section(study));
    if (study.calibration) page.sections.push_back(speed_section(study));
    page.sections.push_back(memory_curve_section(study));
    if (!study.stages.empty() || !study.chunks.empty()) page.sections.push_back(chunk_section(study));
    if (study.calibration) page.sections.push_back(time_section(study));
    if (study.layer && !study.layer->passes.empty()) page.sections.push_back(layer_section(study));
    if (validation != nullptr) page.sections.push_back(accuracy_section(*validation));
    page.sections.push_back(input_section(study));
    if (study.calibration) page.sections.push_back(constant_section(study));
    page.command = origin.command;
    page.made = fmt::format("Made on {} by {}", origin.date, origin.program);
    return page;
}

}  // namespace headroom
