// SPDX-License-Identifier: Apache-2.0
#include "planner/explain.hpp"

#include <algorithm>

#include "models/constraints.hpp"
#include "models/error.hpp"
#include "models/shipped.hpp"
#include "planner/setting_values.hpp"
#include "planner/structure_search.hpp"

namespace headroom {
namespace {

bool is_valid(const Recipe& recipe, const Bed& bed) {
    try {
        check(recipe, bed.model, bed.cluster);
        return true;
    } catch (const Error&) {
        return false;
    }
}

Curve::Point point(const Candidate& chosen, const Recipe& recipe, std::int64_t value, const Bed& bed,
                   Evaluator& evaluator) {
    Curve::Point found;
    found.value = value;
    found.candidate = evaluate(evaluator, recipe, bed);
    const bool allocated_fits = fits(found.candidate.evaluation.memory, recipe, bed);
    found.sticks = allocated_fits && !holds(evaluator, recipe, bed);
    found.fits = allocated_fits && !found.sticks;
    found.chosen = recipe == chosen.recipe;
    return found;
}

}  // namespace

std::vector<Difference> differences(const Recipe& from, const Recipe& to) {
    const std::vector<NamedSetting> before = setting_values(from);
    const std::vector<NamedSetting> after = setting_values(to);
    std::vector<Difference> list;
    for (std::size_t i = 0; i < before.size(); ++i) {
        if (before[i].value == after[i].value) continue;
        list.push_back({std::string(before[i].key), to_string(before[i].value), to_string(after[i].value)});
    }
    return list;
}

Alternative compare(const Candidate& chosen, const Candidate& other, const Bed& bed, Evaluator& evaluator) {
    const Verdict& mine = chosen.evaluation.memory;
    const Verdict& theirs = other.evaluation.memory;
    Alternative alternative;
    alternative.changed = differences(chosen.recipe, other.recipe);
    alternative.candidate = other;
    alternative.peak_change = theirs.device_peak - mine.device_peak;
    alternative.peak_share =
        static_cast<double>(alternative.peak_change.value) / static_cast<double>(mine.device_peak.value);
    alternative.host_change = theirs.host_peak_per_node - mine.host_peak_per_node;
    alternative.speed_change = other.speed / chosen.speed - 1;
    alternative.fits = fits(theirs, other.recipe, bed) && holds(evaluator, other.recipe, bed);
    alternative.device_short = std::max(Bytes{0}, theirs.device_peak - device_limit(bed, other.recipe));
    alternative.host_short = std::max(Bytes{0}, theirs.host_peak_per_node - host_limit(bed));
    return alternative;
}

std::vector<Alternative> turned_options(const Candidate& chosen, const Structure& structure, const Bed& bed,
                                        Evaluator& evaluator) {
    const Options options = structure.options(chosen.index);
    std::vector<Alternative> list;
    const auto turn = [&](std::uint8_t Options::*axis, std::size_t values) {
        for (std::size_t value = 0; value < values; ++value) {
            if (value == options.*axis) continue;
            Options turned = options;
            turned.*axis = static_cast<std::uint8_t>(value);
            list.push_back(compare(chosen, evaluate(evaluator, structure.recipe(turned), bed), bed, evaluator));
        }
    };
    turn(&Options::placement, structure.placements.size());
    turn(&Options::states, structure.states.size());
    turn(&Options::chunks, structure.chunks_on_host.size());
    turn(&Options::norm, structure.norm.size());
    turn(&Options::mlp, structure.mlp.size());
    turn(&Options::loss, structure.loss.size());
    return list;
}

std::optional<Curve> curve(const Candidate& chosen, const Bed& bed, Evaluator& evaluator) {
    Curve result;
    Recipe recipe = chosen.recipe;
    if (recipe.method == Method::upipe) {
        result.key = "heads_per_stage";
        for (const int heads : valid_heads_per_stage(bed.model, recipe.ulysses)) {
            recipe.heads_per_stage = heads;
            result.points.push_back(point(chosen, recipe, heads, bed, evaluator));
            result.points.back().shipped = beyond_shipped_code(recipe, bed.cluster).empty();
        }
    } else if (recipe.method == Method::fpdt) {
        result.key = "chunk_tokens";
        constexpr std::int64_t shortest = 16 * kibi;
        for (std::int64_t chunk = shortest; chunk <= std::min(recipe.context.value, mebi); chunk *= 2) {
            recipe.chunk_tokens = {chunk};
            if (is_valid(recipe, bed)) result.points.push_back(point(chosen, recipe, chunk, bed, evaluator));
        }
    }
    return result.points.empty() ? std::nullopt : std::optional(result);
}

Tokens longest_context_of(Recipe recipe, Tokens step, const Bed& bed, Evaluator& evaluator) {
    const auto fits_at = [&](std::int64_t steps) {
        recipe.context = step * steps;
        return is_valid(recipe, bed) && fits(evaluator.verdict(bed.model, bed.cluster, recipe), recipe, bed) &&
               holds(evaluator, recipe, bed);
    };
    const std::int64_t most = implementation_ceiling(recipe).value / step.value;
    if (most < 1 || !fits_at(1)) return {};
    std::int64_t good = 1;
    while (good * 2 <= most && fits_at(good * 2)) good *= 2;
    std::int64_t bad = std::min(good * 2, most + 1);
    while (bad - good > 1) {
        const std::int64_t middle = good + (bad - good) / 2;
        (fits_at(middle) ? good : bad) = middle;
    }
    return step * good;
}

}  // namespace headroom
