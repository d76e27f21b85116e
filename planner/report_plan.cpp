// SPDX-License-Identifier: Apache-2.0
// A plan as text: the verdict first, then what was planned, then sums that add up to the last digit.
#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <iterator>

#include "planner/report.hpp"
#include "planner/setting_values.hpp"
#include "reports/numbers.hpp"
#include "reports/table.hpp"

namespace headroom {

namespace {

/// One line of a sum: sign, amount, what it is.
std::string entry(const char* sign, const std::string& amount, const std::string& what) {
    return paragraph(printable(what), fmt::format("  {:1}{:>10}  ", sign, amount));
}

/// A part of the entry above it.
std::string sub_entry(const std::string& amount, const std::string& what) {
    return paragraph(printable(what), fmt::format("{:>21}  ", amount));
}

std::string tokens_line(const Recipe& recipe) {
    const std::string exact = with_separators(recipe.context.value);
    const std::string brief = short_tokens(recipe.context);
    return fmt::format("{} tokens global{}, {} per GPU", exact, brief == exact ? "" : " (" + brief + ")",
                       with_separators(tokens_per_gpu(recipe).value));
}

/// What one step trains on, where that is more than one sequence.
std::string sequences_line(const Recipe& recipe, const Cluster& cluster) {
    const std::int64_t sequences = sequences_at_once(recipe, cluster);
    if (sequences == 1) return "";
    const int groups = data_parallel(recipe, cluster);
    const int ranks = recipe.context_parallel();
    const std::string where =
        groups == 1 ? "" : fmt::format(" ({} groups of {} GPU{})", groups, ranks, ranks == 1 ? "" : "s");
    return paragraph(fmt::format("{} sequences at once{}: {} tokens a step", with_separators(sequences), where,
                                 with_separators(tokens_per_step(recipe, cluster).value)));
}

std::string tiling(const char* what, const Tiling& tiles) {
    if (tiles.kind == Tiling::Kind::off) return fmt::format("{} not tiled", what);
    if (tiles.kind == Tiling::Kind::automatic) return fmt::format("{} tiled", what);
    return fmt::format("{} in tiles of {}", what, with_separators(tiles.tokens));
}

std::string states_line(const Recipe& recipe) {
    std::string text =
        recipe.sharding.strategy == ShardingStrategy::none
            ? std::string("states not sharded")
            : fmt::format("states sharded by {} over {}", to_string(recipe.sharding.strategy), recipe.sharding.degree);
    if (recipe.offload.optimizer) text += ", optimizer on the host";
    if (recipe.offload.parameters) text += ", parameters on the host";
    return text;
}

std::string checkpoint_line(const Recipe& recipe) {
    if (recipe.checkpointing == Checkpointing::none) return "no checkpointing";
    if (recipe.offload.block_inputs == HostPlace::none) return "full checkpointing, block inputs on the GPU";
    return fmt::format("full checkpointing, block inputs in {} host memory", to_string(recipe.offload.block_inputs));
}

/// "attention: output 3.00, gradient of output 3.00 and 13 more", largest first.
std::string group_with_largest(const std::vector<MemoryPart>& parts, Group group) {
    constexpr std::size_t named = 2;
    std::vector<MemoryPart> members;
    std::copy_if(parts.begin(), parts.end(), std::back_inserter(members),
                 [&](const MemoryPart& part) { return part.group == group; });
    std::stable_sort(members.begin(), members.end(),
                     [](const MemoryPart& a, const MemoryPart& b) { return a.bytes > b.bytes; });
    std::string text(to_string(group));
    if (members.size() == 1) return text + ": " + members.front().name;
    for (std::size_t i = 0; i < std::min(named, members.size()); ++i) {
        text += fmt::format("{} {} {}", i == 0 ? ":" : ",", members[i].name, gib(members[i].bytes));
    }
    if (members.size() > named) text += fmt::format(" and {} more", members.size() - named);
    return text;
}

std::string group_entries(const DeviceMemory& device, Centigib peak) {
    std::vector<Group> groups;
    std::vector<Bytes> bytes;
    for (const MemoryPart& part : device.parts) {
        if (groups.empty() || groups.back() != part.group) {
            groups.push_back(part.group);
            bytes.emplace_back();
        }
        bytes.back() += part.bytes;
    }
    const std::vector<Centigib> shown = apportion(peak, bytes);
    std::string text;
    for (std::size_t i = 0; i < groups.size(); ++i) {
        text += sub_entry(centigib(shown[i]), group_with_largest(device.parts, groups[i]));
    }
    return text;
}

/// capacity - outside = usable; usable - peak - cached = margin: in hundredths of a GiB that add up. The margin has the
/// right sign because need and usable are rounded whole.
struct DeviceSum {
    Centigib capacity, usable, peak, unreturnable, margin;
    std::vector<Centigib> outside;

    explicit DeviceSum(const DeviceMemory& device)
        : capacity(in_centigib(device.capacity)), usable(in_centigib(device.usable)), peak(in_centigib(device.peak)) {
        const Centigib need = in_centigib(device.peak + device.unreturnable);
        unreturnable = need - peak;
        margin = usable - need;
        std::vector<Bytes> terms;
        for (const OutsideTerm& term : device.outside) terms.push_back(term.bytes);
        outside = apportion(capacity - usable, terms);
    }
};

std::string device_section(const Plan& plan, const Style& style) {
    const DeviceMemory& device = plan.device;
    const DeviceSum sum(device);
    std::string text = style.strong("Device memory in GiB") +
                       fmt::format(", peak on rank {} of {}\n", device.peak_rank, plan.recipe.context_parallel());
    if (!device.phase.empty()) text += paragraph(device.phase, "  at: ");
    text += entry("", centigib(sum.capacity), "capacity");
    for (std::size_t i = 0; i < device.outside.size(); ++i) {
        text += entry("-", centigib(sum.outside[i]), device.outside[i].name);
    }
    text += entry("=", centigib(sum.usable), "usable by the allocator");
    text += entry("-", centigib(sum.peak), "allocated at the peak:");
    text += group_entries(device, sum.peak);
    if (device.unreturnable.value != 0) {
        text += entry("-", centigib(sum.unreturnable), "cached, cannot be returned");
    }
    text += entry("=", centigib(sum.margin), sum.margin < 0 ? "margin: too little" : "margin");

    text += "  Beside the sum:\n";
    text += entry("", gib(device.rank0_peak), "allocated on rank 0, as a training log shows");
    text += entry("", gib(device.peak_reserved), "reserved by the allocator while there is room to spare");
    text +=
        entry("", gib(device.peak_reserved + device.outside_allocator), "used on the device then, as the driver shows");
    return text;
}

std::string host_section(const Plan& plan, const Style& style) {
    const HostMemory& host = plan.host;
    const std::vector<Centigib> shown =
        apportion(in_centigib(host.usable_per_node),
                  {host.pinned_per_node, host.pageable_per_node, host.usable_per_node - host.peak_per_node});
    const bool adds_up = host.pinned_per_node + host.pageable_per_node == host.peak_per_node;
    std::string text = style.strong("Host memory per node in GiB") + "\n";
    const auto parts_in = [&](Place place) {
        std::string lines;
        for (const HostPart& part : host.parts) {
            if (part.place == place) lines += sub_entry(gib(part.bytes), part.name);
        }
        return lines;
    };
    text += entry("", gib(host.capacity_per_node), "capacity");
    const Centigib usable = in_centigib(host.usable_per_node);
    text +=
        entry("-", centigib(in_centigib(host.capacity_per_node) - usable), "left to the system and the data loader");
    text += entry("=", centigib(usable), "usable for training");
    text += entry("-", adds_up ? centigib(shown[0]) : gib(host.pinned_per_node), "pinned");
    text += parts_in(Place::host_pinned);
    text += entry("-", adds_up ? centigib(shown[1]) : gib(host.pageable_per_node), "pageable");
    text += parts_in(Place::host_pageable);
    if (!adds_up) text += entry("", gib(host.peak_per_node), "peak of both together");
    text += entry("=", adds_up ? centigib(shown[2]) : gib(host.usable_per_node - host.peak_per_node),
                  host.fits ? "margin" : "margin: too little");
    return text;
}

/// The settings that would make it fit, and where to ask for more.
std::string change_text(const WayOut& way_out) {
    if (way_out.recommend.empty()) return "";
    const std::string more = fmt::format("`{}` searches all methods.", printable(way_out.recommend));
    if (!way_out.change) return hanging("No change of settings alone makes it fit; " + more);
    std::string flags;
    for (const Difference& difference : way_out.change->changed) {
        flags += fmt::format("{}--set {}={}", flags.empty() ? "" : " ", difference.key, difference.to);
    }
    const DeviceMemory& device = way_out.change->plan.device;
    const double percent = std::round(way_out.change->speed_change * 1000) / 10;
    const std::string speed = percent == 0 ? "as fast" : fmt::format("speed {:+.1f}%", percent);
    return hanging(fmt::format("Cheapest change that makes it fit: {} ({}, {} GiB to spare); {}", flags, speed,
                               gib(device.usable - device.peak - device.unreturnable), more));
}

/// Shortfall, need and budget with their parts, and what would fit.
std::string shortfall(const Plan& plan, const WayOut& way_out) {
    const std::optional<MaxContext>& longest = way_out.longest;
    std::string text;
    const DeviceMemory& device = plan.device;
    if (!device.fits) {
        const DeviceSum sum(device);
        std::string need = fmt::format("needs {}", centigib(sum.peak + sum.unreturnable));
        if (sum.unreturnable != 0) {
            need += fmt::format(" = {} allocated + {} cached", centigib(sum.peak), centigib(sum.unreturnable));
        }
        std::string budget = fmt::format("{} = {} capacity", centigib(sum.usable), centigib(sum.capacity));
        for (std::size_t i = 0; i < device.outside.size(); ++i) {
            budget += fmt::format(" - {} {}", centigib(sum.outside[i]), device.outside[i].name);
        }
        text += paragraph(
            fmt::format("Short by {} GiB on the GPU: {}; budget {}.", centigib(std::abs(sum.margin)), need, budget));
    }
    if (!plan.host.fits) {
        text += paragraph(fmt::format("Short by {} GiB on the host: a node needs {}; budget {} of {} capacity.",
                                      gib(plan.host.peak_per_node - plan.host.usable_per_node),
                                      gib(plan.host.peak_per_node), gib(plan.host.usable_per_node),
                                      gib(plan.host.capacity_per_node)));
    }
    text += change_text(way_out);
    if (longest && longest->context.value > 0) {
        text += paragraph(fmt::format("Longest context that fits with this recipe: {} ({} tokens).",
                                      approximate_tokens(longest->context), with_separators(longest->context.value)));
    } else if (longest) {
        text += "No context fits with this recipe.\n";
    }
    if (way_out.nodes > 0) {
        text += paragraph(fmt::format("Fewest nodes on which it fits: {} ({} GPUs).", way_out.nodes,
                                      way_out.nodes * plan.cluster.gpus_per_node));
    }
    return text;
}

}  // namespace

Tokens tokens_per_gpu(const Recipe& recipe) {
    return {divide_round_up(recipe.context.value, std::max(1, recipe.context_parallel()))};
}

std::string degrees(const Recipe& recipe) {
    std::string text = fmt::format("Ulysses {} x ring {}", recipe.ulysses, recipe.ring);
    if (recipe.method == Method::upipe) text += fmt::format(", {} heads per stage", recipe.heads_per_stage);
    if (recipe.method == Method::fpdt) text += fmt::format(", chunks of {} tokens", short_tokens(recipe.chunk_tokens));
    return text;
}

int data_parallel(const Recipe& recipe, const Cluster& cluster) {
    return std::max(1, cluster.gpus() / std::max(1, recipe.context_parallel()));
}

std::int64_t sequences_at_once(const Recipe& recipe, const Cluster& cluster) {
    return recipe.batch * data_parallel(recipe, cluster);
}

Tokens tokens_per_step(const Recipe& recipe, const Cluster& cluster) {
    return recipe.context * sequences_at_once(recipe, cluster);
}

std::string recipe_lines(const Recipe& recipe, const Cluster& cluster) {
    std::string text =
        paragraph(fmt::format("{}: {}, batch {}", to_string(recipe.method), degrees(recipe), recipe.batch));
    text += tokens_line(recipe) + '\n';
    text += sequences_line(recipe, cluster);
    text += paragraph(fmt::format("{} code with {} attention; {}; {}, {}, {}; {}", to_string(recipe.implementation),
                                  to_string(recipe.attention_kernel), checkpoint_line(recipe),
                                  tiling("norm", recipe.tiling.norm), tiling("MLP", recipe.tiling.mlp),
                                  tiling("loss", recipe.tiling.loss), states_line(recipe)));
    return text;
}

std::string bench_line(const Transformer& model, const Cluster& cluster) {
    return paragraph(fmt::format("{} ({} parameters) on {}, {} {} x {} {}", printable(model.name),
                                 with_separators(count_parameters(model).total()), printable(cluster.name),
                                 cluster.nodes, cluster.nodes == 1 ? "node" : "nodes", cluster.gpus_per_node,
                                 cluster.gpus_per_node == 1 ? "GPU" : "GPUs"));
}

std::string plan_text(const Plan& plan, const Style& style, const WayOut& way_out) {
    std::string verdict = paragraph(plan.verdict);
    verdict.pop_back();  // the colour ends before the line does
    std::string text = (plan.fits ? style.good(verdict) : style.bad(verdict)) + "\n";
    if (!plan.fits) text += shortfall(plan, way_out);
    text += step_headline(plan);
    text += "\n" + bench_line(plan.model, plan.cluster) + recipe_lines(plan.recipe, plan.cluster);
    text += "\n" + device_section(plan, style);
    text += "\n" + host_section(plan, style);
    if (plan.step) text += "\n" + step_section(plan, style);
    if (!plan.warnings.empty()) text += "\n";
    for (const std::string& warning : plan.warnings) text += paragraph(warning, "warning: ");
    return text;
}

}  // namespace headroom
