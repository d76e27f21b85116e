// SPDX-License-Identifier: Apache-2.0
#include "planner/what_if.hpp"

#include <algorithm>
#include <cmath>
#include <functional>

namespace headroom {
namespace {

using Amounts = std::vector<std::pair<std::string, double>>;

void add(Amounts& amounts, const std::string& name, double value) {
    const auto known = std::find_if(amounts.begin(), amounts.end(), [&](const auto& a) { return a.first == name; });
    if (known == amounts.end()) {
        amounts.emplace_back(name, value);
    } else {
        known->second += value;
    }
}

std::vector<DeltaRow> deltas(const WhatIf& comparison, const std::function<Amounts(const Plan&)>& read) {
    std::vector<DeltaRow> rows;
    const auto row_of = [&](const std::string& name) -> DeltaRow& {
        const auto known =
            std::find_if(rows.begin(), rows.end(), [&](const DeltaRow& row) { return row.name == name; });
        if (known != rows.end()) return *known;
        rows.push_back({name, 0, std::vector<double>(comparison.variants.size())});
        return rows.back();
    };
    for (const auto& [name, value] : read(comparison.base)) row_of(name).base = value;
    for (std::size_t i = 0; i < comparison.variants.size(); ++i) {
        for (const auto& [name, value] : read(comparison.variants[i].plan)) row_of(name).variants[i] = value;
    }
    std::erase_if(rows, [](const DeltaRow& row) { return row.size() == 0; });
    std::stable_sort(rows.begin(), rows.end(),
                     [](const DeltaRow& a, const DeltaRow& b) { return a.size() > b.size(); });
    return rows;
}

double real(Bytes bytes) { return static_cast<double>(bytes.value); }

}  // namespace

double DeltaRow::size() const {
    double largest = 0;
    for (const double value : variants) largest = std::max(largest, std::abs(value - base));
    return largest;
}

std::vector<DeltaRow> memory_deltas(const WhatIf& comparison) {
    return deltas(comparison, [](const Plan& plan) {
        Amounts amounts;
        for (const MemoryPart& part : plan.device.parts) {
            add(amounts, std::string(to_string(part.group)) + ": " + part.name, real(part.bytes));
        }
        add(amounts, "cached, cannot be returned", real(plan.device.unreturnable));
        for (const OutsideTerm& term : plan.device.outside) add(amounts, "outside: " + term.name, real(term.bytes));
        return amounts;
    });
}

std::vector<DeltaRow> host_deltas(const WhatIf& comparison) {
    return deltas(comparison, [](const Plan& plan) {
        return Amounts{{"pinned", real(plan.host.pinned_per_node)}, {"pageable", real(plan.host.pageable_per_node)}};
    });
}

std::vector<DeltaRow> time_deltas(const WhatIf& comparison) {
    const auto timed = [](const Plan& plan) { return plan.step.has_value(); };
    const bool all = timed(comparison.base) && std::all_of(comparison.variants.begin(), comparison.variants.end(),
                                                           [&](const Variant& v) { return timed(v.plan); });
    if (!all) return {};
    return deltas(comparison, [](const Plan& plan) {
        Amounts amounts;
        for (std::size_t i = 0; i < part_count; ++i) {
            amounts.emplace_back(part_names[i], plan.step->time.parts[i].exposed.value);
        }
        return amounts;
    });
}

std::string verdict_change(const Plan& base, const Plan& variant) {
    if (base.fits && variant.fits) return "fits, as before";
    if (variant.fits) return "fits now";
    return base.fits ? "fits no longer" : "does not fit, as before";
}

}  // namespace headroom
