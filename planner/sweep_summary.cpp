// SPDX-License-Identifier: Apache-2.0
#include "planner/sweep_summary.hpp"

#include <algorithm>

#include "planner/setting_values.hpp"

namespace headroom {
namespace {

std::string value_of(const GridAxis& axis, const Settings& settings) {
    for (const NamedSetting& setting : setting_values(settings)) {
        if (setting.key == axis.key) return to_string(setting.value);
    }
    return {};
}

bool faster(const SweepRow& a, const SweepRow& b) {
    if (!a.speed || !b.speed) return !a.speed && !b.speed && device_need(a) < device_need(b);
    return a.speed->tokens_per_second_per_gpu > b.speed->tokens_per_second_per_gpu;
}

Method method_of(const SweepRow& row) {
    return row.status == SweepStatus::invalid ? row.said.method.value_or(Method::upipe) : row.recipe.method;
}

Tokens context_of(const SweepRow& row) {
    return row.status == SweepStatus::invalid ? row.said.context.value_or(Tokens{}) : row.recipe.context;
}

/// A shortage without its amount, so that equal ones count together.
std::string kind_of(const std::string& shortage) {
    const std::size_t at = shortage.find("GiB short");
    return at == std::string::npos ? shortage : shortage.substr(at + 4);
}

void count(std::map<std::string, std::int64_t>& reasons, const std::string& reason) {
    constexpr std::size_t most = 100;
    const auto found = reasons.find(reason);
    if (found != reasons.end()) {
        ++found->second;
    } else {
        ++reasons[reasons.size() < most ? reason : ""];
    }
}

}  // namespace

SweepSummarizer::SweepSummarizer(const Grid& grid) : grid_(grid) {
    for (const Transformer& model : grid.models) {
        for (const Cluster& cluster : grid.clusters) summary_.benches.push_back({&model, &cluster, {}, {}});
    }
    for (const GridAxis& axis : grid.axes) {
        std::vector<SweepChoice> values;
        for (const Settings& settings : axis.values) values.push_back({value_of(axis, settings), {}, {}, 0});
        summary_.choices.push_back(std::move(values));
    }
}

void SweepSummarizer::add(const SweepRow& row) {
    const Tokens context = context_of(row);
    const bool fits = row.status == SweepStatus::fits;
    std::int64_t rest = row.index;
    for (std::size_t axis = grid_.axes.size(); axis-- > 0;) {
        const auto values = static_cast<std::int64_t>(summary_.choices[axis].size());
        SweepChoice& choice = summary_.choices[axis][static_cast<std::size_t>(rest % values)];
        rest /= values;
        ++choice.counts[row.status];
        if (fits) choice.longest = std::max(choice.longest, context);
    }
    SweepBench& bench = summary_.benches[static_cast<std::size_t>(rest)];
    SweepCell& cell = bench.methods[static_cast<std::size_t>(method_of(row))][context];
    for (SweepCounts* counts : {&summary_.counts, &bench.counts, &cell.counts}) ++(*counts)[row.status];
    if (row.status == SweepStatus::invalid) return count(summary_.rules, row.reason);
    if (row.speed && row.speed->domain != 0) {
        ++summary_.outside_domain;
        summary_.domain |= row.speed->domain;
    }
    const Bytes need = device_need(row);
    if (!cell.least_need || need < *cell.least_need) cell.least_need = need;
    if (!fits) return count(summary_.shortages, kind_of(row.reason));
    if (!row.beyond_shipped_code.empty()) count(summary_.beyond_shipped_code, row.beyond_shipped_code);
    if (!cell.fastest || faster(row, *cell.fastest)) cell.fastest = row;
}

SweepSummary SweepSummarizer::take() {
    for (const SweepBench& bench : summary_.benches) {
        for (const Tokens context : contexts_of(bench)) {
            const SweepRow* row = fastest_at(bench, context);
            if (row == nullptr) continue;
            std::int64_t rest = row->index;
            for (std::size_t axis = grid_.axes.size(); axis-- > 0;) {
                const auto values = static_cast<std::int64_t>(summary_.choices[axis].size());
                ++summary_.choices[axis][static_cast<std::size_t>(rest % values)].wins;
                rest /= values;
            }
        }
    }
    return std::move(summary_);
}

Bytes device_need(const SweepRow& row) { return row.device_peak + (row.cluster->device_memory - row.device_usable); }

const SweepRow* fastest_at(const SweepBench& bench, Tokens context) {
    const SweepRow* best = nullptr;
    for (const auto& cells : bench.methods) {
        const auto found = cells.find(context);
        if (found == cells.end() || !found->second.fastest) continue;
        const SweepRow& row = *found->second.fastest;
        if (best == nullptr || faster(row, *best)) best = &row;
    }
    return best;
}

const SweepRow* longest_of(const SweepBench& bench, Method method) {
    const auto& cells = bench.methods[static_cast<std::size_t>(method)];
    const auto found =
        std::find_if(cells.rbegin(), cells.rend(), [](const auto& entry) { return entry.second.fastest.has_value(); });
    return found == cells.rend() ? nullptr : &*found->second.fastest;
}

std::vector<Tokens> contexts_of(const SweepBench& bench) {
    std::vector<Tokens> contexts;
    for (const auto& cells : bench.methods) {
        for (const auto& [context, cell] : cells) contexts.push_back(context);
    }
    std::sort(contexts.begin(), contexts.end());
    contexts.erase(std::unique(contexts.begin(), contexts.end()), contexts.end());
    return contexts;
}

}  // namespace headroom
