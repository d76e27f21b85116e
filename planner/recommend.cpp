// SPDX-License-Identifier: Apache-2.0
#include "planner/recommend.hpp"

#include <oneapi/tbb/parallel_for.h>

#include <algorithm>
#include <functional>
#include <numeric>

#include "models/constraints.hpp"
#include "models/shipped.hpp"
#include "planner/structure_search.hpp"

namespace headroom {
namespace {

bool is_asked(const Question& question, Method method) {
    const std::vector<Method>& methods = question.methods;
    if (question.said.method) return *question.said.method == method;
    return methods.empty() || std::find(methods.begin(), methods.end(), method) != methods.end();
}

/// The least multiple of a step that a recipe's ranks and chunks divide.
Tokens common_step(Tokens step, const Recipe& recipe) {
    const std::int64_t granule = context_granule(recipe).value;
    const std::int64_t times = granule / std::gcd(step.value, granule);
    return times > longest_context.value / step.value ? longest_context + Tokens{1} : step * times;
}

/// Of a method's structures with published batch and chunks, the one over the most ranks.
const Structure* widest_as_published(const std::vector<Structure>& structures, Method method) {
    const auto width = [](const Structure& s) { return std::pair(s.base.context_parallel(), s.base.ulysses); };
    const Structure* widest = nullptr;
    for (const Structure& structure : structures) {
        const Recipe& base = structure.base;
        const Recipe& published = structure.published;
        if (base.method != method || base.batch != published.batch || base.chunk_tokens != published.chunk_tokens ||
            base.heads_per_stage != published.heads_per_stage) {
            continue;
        }
        if (widest == nullptr || width(structure) > width(*widest)) widest = &structure;
    }
    return widest;
}

class Advisor {
 public:
    explicit Advisor(const Question& question)
        : question_(question),
          bed_{question.model, question.cluster, question.basis.calibration.value(), question.margin} {}

    Recommendations answer() {
        Recommendations result;
        result.model = question_.model;
        result.cluster = question_.cluster;
        result.bench_flags = question_.bench_flags;
        result.margin = question_.margin;
        result.exhaustive = question_.search.exhaustive;
        result.step = question_.step;
        result.tie = question_.search.tie;
        result.longest = !question_.said.context;
        result.asked_step = question_.step;
        const Reach reach = result.longest || question_.front ? longest() : Reach{};
        if (reach.step.value > 0) result.step = reach.step;
        result.context = result.longest ? reach.context : *question_.said.context;
        if (result.context.value == 0) {
            // Nothing fits at the shortest context tried: the search there says how much is missing.
            result.context = result.step;
        }
        SearchSpace space = space_at(result.context, question_.said);
        Ranking ranking = search(space, bed_, question_.search);
        // What sticks in the allocator is not seen by the search for the longest context.
        while (result.longest && ranking.best.empty() && result.context > result.step) {
            result.context -= result.step;
            space = space_at(result.context, question_.said);
            ranking = search(space, bed_, question_.search);
        }
        if (result.longest && !ranking.best.empty()) {
            result.step = common_step(question_.step, ranking.best.front().recipe);
        }
        result.considered = ranking.considered;
        result.evaluated = ranking.evaluated;
        result.feasible = ranking.fitting;
        result.refusal = space.refusal;
        result.list.resize(ranking.best.size());
        oneapi::tbb::parallel_for(std::size_t{0}, ranking.best.size(),
                                  [&](std::size_t i) { result.list[i] = explained(ranking.best, i, space); });
        result.near_misses = near_misses(result, space);
        if (result.list.empty() && result.considered > 0) result.fits_on_nodes = enough_nodes(result.context);
        if (question_.front) result.front = front(result, reach);
        return result;
    }

 private:
    SearchSpace space_at(Tokens context, Settings said) const {
        said.context = context;
        return search_space(said, question_.published, question_.model, question_.cluster, question_.methods);
    }

    int enough_nodes(Tokens context) const {
        constexpr int most_doublings = 6;
        Settings said = question_.said;
        said.context = context;
        Cluster cluster = question_.cluster;
        for (int doubling = 0; doubling < most_doublings; ++doubling) {
            cluster.nodes *= 2;
            const Bed bed{question_.model, cluster, bed_.calibration, question_.margin};
            const SearchSpace space =
                search_space(said, question_.published, question_.model, cluster, question_.methods);
            if (any_fits(space, bed)) return cluster.nodes;
        }
        return 0;
    }

    /// How far recipes go, and the step in which that was found: the one asked for, rounded up to what they divide by.
    struct Reach {
        Tokens context, step;
    };

    /// Steps in which the recipes of a method can be tried; each is a multiple of the one asked for.
    std::vector<Tokens> steps_of(const Settings& said) const {
        // Any context that every degree and chunk divides shows all recipes; FPDT's depend on the chunk alone.
        const Tokens probe = *said.method == Method::fpdt ? said.chunk_tokens.value_or(longest_chunk)
                                                          : Tokens{2 * std::int64_t{question_.cluster.gpus()}};
        std::vector<Tokens> steps;
        for (const Structure& structure : space_at(probe, said).structures) {
            const Tokens step = common_step(question_.step, structure.base);
            if (std::find(steps.begin(), steps.end(), step) == steps.end()) steps.push_back(step);
        }
        // In the coarsest step all recipes can be tried, and more memory is needed for more tokens; finer steps, which
        // only some recipes divide, then go on from there.
        std::sort(steps.begin(), steps.end(), std::greater<>());
        return steps;
    }

    /// The longest context in this step; nothing unless it is above `least`.
    Tokens longest_in(Tokens step, Tokens least, const Settings& said) const {
        const auto fits_at = [&](std::int64_t steps) { return any_fits(space_at(step * steps, said), bed_); };
        const std::int64_t first = least.value / step.value + 1;
        const std::int64_t most = longest_context.value / step.value;
        if (first > most || !fits_at(first)) return {};
        std::int64_t good = first;
        std::int64_t bad = good;
        do {
            good = bad;
            bad = std::min(most + 1, bad * 2);
        } while (bad <= most && fits_at(bad));
        while (bad - good > 1) {
            const std::int64_t middle = good + (bad - good) / 2;
            (fits_at(middle) ? good : bad) = middle;
        }
        // Tile counts and blocks of powers of two make memory slightly uneven.
        constexpr std::int64_t uneven_steps = 2;
        for (std::int64_t further = uneven_steps; further > 0; --further) {
            if (good + further <= most && fits_at(good + further)) return step * (good + further);
        }
        return step * good;
    }

    Reach longest() const {
        // Methods that reach furthest come first, so that the others need only show that they reach no further.
        constexpr Method order[]{Method::upipe, Method::fpdt,   Method::ulysses,
                                 Method::usp,   Method::native, Method::ring};
        Reach reach;
        for (const Method method : order) {
            if (!is_asked(question_, method)) continue;
            Settings said = question_.said;
            said.method = method;
            for (const Tokens step : steps_of(said)) {
                const Tokens context = longest_in(step, reach.context, said);
                if (context > reach.context || reach.step.value == 0) reach = {context, step};
            }
        }
        return reach;
    }

    Recommendation explained(const std::vector<Candidate>& ranked, std::size_t i, const SearchSpace& space) const {
        Evaluator evaluator;
        Recommendation result;
        const Structure& structure = space.structures[ranked[i].structure];
        result.candidate = ranked[i];
        result.plan = make_plan(bed_.model, bed_.cluster, ranked[i].recipe, question_.basis);
        result.published = structure.published;
        Settings family;
        family.method = ranked[i].recipe.method;
        family.context = ranked[i].recipe.context;
        family.implementation = ranked[i].recipe.implementation;
        family.ulysses = ranked[i].recipe.ulysses;
        family.ring = ranked[i].recipe.ring;
        result.plain = plain_recipe(family);
        if (!(result.published == ranked[i].recipe)) {
            result.as_published = compare(ranked[i], evaluate(evaluator, result.published, bed_), bed_, evaluator);
        }
        if (i + 1 < ranked.size()) result.next = compare(ranked[i], ranked[i + 1], bed_, evaluator);
        result.turned = turned_options(ranked[i], structure, bed_, evaluator);
        result.curve = curve(ranked[i], bed_, evaluator);
        return result;
    }

    Recipe plain_recipe(const Settings& family) const {
        const Settings& published = question_.published[static_cast<std::size_t>(*family.method)];
        return resolve(family, published, question_.model, question_.cluster);
    }

    NearMiss near_miss(const Candidate& candidate, const Structure& structure, double best_speed) const {
        Evaluator evaluator;
        NearMiss miss;
        miss.candidate = candidate;
        miss.beyond_shipped_code = beyond_shipped_code(candidate.recipe, bed_.cluster);
        const Verdict& memory = candidate.evaluation.memory;
        miss.device_short = std::max(Bytes{0}, memory.device_peak - device_limit(bed_, candidate.recipe));
        miss.host_short = std::max(Bytes{0}, memory.host_peak_per_node - host_limit(bed_));
        if (best_speed > 0) miss.faster_by = candidate.speed / best_speed - 1;
        const Tokens step = common_step(question_.step, candidate.recipe);
        miss.fits_up_to = longest_context_of(candidate.recipe, step, bed_, evaluator);
        std::vector<Alternative> turned = turned_options(candidate, structure, bed_, evaluator);
        std::erase_if(turned, [](const Alternative& turn) { return !turn.fits; });
        if (candidate.recipe.context > implementation_ceiling(candidate.recipe)) turned.clear();
        const auto least = std::max_element(
            turned.begin(), turned.end(), [](const auto& a, const auto& b) { return a.speed_change < b.speed_change; });
        if (least != turned.end()) {
            miss.turn = least->changed;
            miss.turn_costs = -least->speed_change;
        }
        return miss;
    }

    /// Each method's published recipe, where it does not fit; and, where a method has no recipe that fits, its leanest.
    std::vector<NearMiss> near_misses(const Recommendations& result, const SearchSpace& space) const {
        constexpr std::size_t most = 4;
        const double best_speed = result.list.empty() ? 0 : result.list.front().candidate.speed;
        std::vector<NearMiss> list;
        Evaluator evaluator;
        for (std::size_t m = 0; m < method_names.size(); ++m) {
            const auto method = static_cast<Method>(m);
            const Structure* widest = widest_as_published(space.structures, method);
            if (widest == nullptr) widest = widest_as_published(space.beyond, method);
            if (widest == nullptr) continue;
            for (std::int64_t index = 0; index < widest->size(); ++index) {
                if (!(widest->recipe(widest->options(index)) == widest->published)) continue;
                Candidate candidate = evaluate(evaluator, widest->published, bed_);
                candidate.index = index;
                const bool runs = candidate.recipe.context <= implementation_ceiling(candidate.recipe);
                if (runs && fits(candidate.evaluation.memory, candidate.recipe, bed_)) continue;
                list.push_back(near_miss(candidate, *widest, best_speed));
            }
        }
        std::stable_sort(list.begin(), list.end(), [](const NearMiss& a, const NearMiss& b) {
            return std::pair(a.device_short, a.host_short) < std::pair(b.device_short, b.host_short);
        });
        if (list.size() > most) list.resize(most);
        return list;
    }

    /// The fastest recipe at each doubling of the context up to the longest; points that another one beats in both are
    /// left out.
    std::vector<FrontPoint> front(const Recommendations& result, const Reach& reach) const {
        const Tokens furthest = result.longest ? result.context : reach.context;
        std::vector<Tokens> contexts;
        for (Tokens context = result.step; context < furthest; context = context * 2) contexts.push_back(context);
        contexts.push_back(furthest);
        if (!result.longest && std::find(contexts.begin(), contexts.end(), result.context) == contexts.end()) {
            contexts.push_back(result.context);
        }
        std::sort(contexts.begin(), contexts.end());
        SearchOptions options = question_.search;
        options.families = 1;
        std::vector<FrontPoint> points;
        for (const Tokens context : contexts) {
            const Ranking ranking = search(space_at(context, question_.said), bed_, options);
            if (ranking.best.empty()) continue;
            const FrontPoint point{context, ranking.best.front()};
            while (!points.empty() && points.back().candidate.speed <= point.candidate.speed) points.pop_back();
            points.push_back(point);
        }
        return points;
    }

    const Question& question_;
    Bed bed_;
};

}  // namespace

Recommendations recommend(const Question& question) {
    Recommendations answer = Advisor(question).answer();
    if (is_asked(question, Method::ulysses) && !question.said.implementation) answer.not_searched = not_searched;
    return answer;
}

}  // namespace headroom
