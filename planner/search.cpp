// SPDX-License-Identifier: Apache-2.0
#include "planner/search.hpp"

#include <oneapi/tbb/enumerable_thread_specific.h>
#include <oneapi/tbb/parallel_for.h>

#include <algorithm>
#include <cmath>
#include <tuple>

#include "models/training_step.hpp"
#include "planner/outside.hpp"
#include "planner/structure_search.hpp"

namespace headroom {
namespace {

namespace tbb = oneapi::tbb;

/// Batches of one structure: a longer batch is tried only where the shorter one fits somehow.
struct Batches {
    std::size_t first = 0, last = 0;
};

bool same_but_batch(const Structure& a, const Structure& b) {
    Recipe base = a.base;
    base.batch = b.base.batch;
    base.offload.block_inputs = b.base.offload.block_inputs;
    return a.family == b.family && base.heads_per_stage == b.base.heads_per_stage &&
           base.chunk_tokens == b.base.chunk_tokens && a.base.batch < b.base.batch;
}

/// Methods that are quick to evaluate come first, and the widest exchanges: what is found there rules out the rest.
std::vector<Batches> groups_of(const SearchSpace& space) {
    std::vector<Batches> groups;
    for (std::size_t i = 0; i < space.structures.size(); ++i) {
        if (i > 0 && same_but_batch(space.structures[i - 1], space.structures[i])) {
            groups.back().last = i + 1;
        } else {
            groups.push_back({i, i + 1});
        }
    }
    const auto order = [&](const Batches& group) {
        const Recipe& base = space.structures[group.first].base;
        const bool ring = base.method == Method::ring || base.method == Method::native;
        const int kind = base.method == Method::fpdt ? 2 : ring ? 1 : 0;
        return std::tuple(kind, -base.context_parallel(), -base.ulysses, -base.chunk_tokens.value, group.first);
    };
    std::sort(groups.begin(), groups.end(), [&](const Batches& a, const Batches& b) { return order(a) < order(b); });
    return groups;
}

/// What each family has so far, and the speed that a candidate needs to matter.
class Leaders {
 public:
    Leaders(std::size_t families, const SearchOptions& options)
        : found_(families), wanted_(options.families), tie_(options.tie) {}

    void offer(const Candidate& candidate) { found_[candidate.family].push_back(candidate); }

    /// Slower ones are neither among the best families nor a tie with the best of their own.
    double threshold(std::size_t family) const {
        const std::vector<Candidate> leaders = ranked();
        double speed = leaders.size() >= wanted_ ? leaders.back().speed : 0;
        for (const Candidate& candidate : found_[family]) speed = std::max(speed, candidate.speed);
        return speed * (1 - tie_);
    }

    std::vector<Candidate> ranked() const {
        std::vector<Candidate> list;
        for (const auto& candidates : found_) {
            if (const Candidate* chosen = choose(candidates, tie_)) list.push_back(*chosen);
        }
        std::sort(list.begin(), list.end(), better);
        if (list.size() > wanted_) list.resize(wanted_);
        return list;
    }

 private:
    std::vector<std::vector<Candidate>> found_;
    std::size_t wanted_;
    double tie_;
};

using Evaluators = tbb::enumerable_thread_specific<Evaluator>;

struct Found {
    std::vector<Candidate> best;
    SearchCounts counts;
};

Found search_group(const SearchSpace& space, const Batches& group, const Bed& bed, const SearchOptions& options,
                   double threshold, Evaluator& evaluator) {
    Found found;
    for (std::size_t i = group.first; i < group.last; ++i) {
        StructureSearch structure(space.structures[i], i, bed, evaluator);
        const std::optional<Candidate> best =
            options.exhaustive ? structure.exhaustive(options.tie) : structure.pruned(threshold, options.tie);
        found.counts += structure.counts();
        if (best) {
            found.best.push_back(*best);
            threshold = std::max(threshold, best->speed * (1 - options.tie));
        }
        if (!options.exhaustive && !structure.something_fits()) break;
    }
    return found;
}

}  // namespace

bool better(const Candidate& a, const Candidate& b) {
    if (a.speed != b.speed) return a.speed > b.speed;
    const auto rest = [](const Candidate& c) {
        return std::tuple(c.evaluation.memory.device_peak, c.evaluation.memory.host_peak_per_node, c.structure,
                          c.index);
    };
    return rest(a) < rest(b);
}

int departures(const Recipe& recipe, const Recipe& published) {
    const auto count = [](const auto&... same) { return (static_cast<int>(!same) + ...); };
    const Recipe& a = recipe;
    const Recipe& b = published;
    return count(a.heads_per_stage == b.heads_per_stage, a.chunk_tokens == b.chunk_tokens, a.batch == b.batch,
                 a.checkpointing == b.checkpointing, a.offload.block_inputs == b.offload.block_inputs,
                 a.offload.optimizer == b.offload.optimizer, a.offload.parameters == b.offload.parameters,
                 a.offload.chunks == b.offload.chunks, a.tiling.norm == b.tiling.norm, a.tiling.mlp == b.tiling.mlp,
                 a.tiling.loss == b.tiling.loss, a.sharding.strategy == b.sharding.strategy);
}

int chunk_steps(const Recipe& recipe, const Recipe& published) {
    const std::int64_t a = recipe.chunk_tokens.value;
    const std::int64_t b = published.chunk_tokens.value;
    if (a <= 0 || b <= 0) return 0;
    return static_cast<int>(std::lround(std::fabs(std::log2(static_cast<double>(a) / static_cast<double>(b)))));
}

const Candidate* choose(const std::vector<Candidate>& candidates, double tie) {
    double fastest = 0;
    for (const Candidate& candidate : candidates) fastest = std::max(fastest, candidate.speed);
    const Candidate* chosen = nullptr;
    for (const Candidate& candidate : candidates) {
        if (candidate.speed < fastest * (1 - tie)) continue;
        const auto distance = [](const Candidate& c) { return std::pair(c.departures, c.chunk_steps); };
        const bool nearer = chosen == nullptr || distance(candidate) < distance(*chosen);
        const bool equally_near = chosen != nullptr && distance(candidate) == distance(*chosen);
        if (nearer || (equally_near && better(candidate, *chosen))) chosen = &candidate;
    }
    return chosen;
}

double tokens_per_second_per_gpu(const Recipe& recipe, Seconds step) {
    return static_cast<double>(recipe.context.value * recipe.batch) / recipe.context_parallel() / step.value;
}

bool fits(const Verdict& verdict, const Recipe& recipe, const Bed& bed) {
    return verdict.device_peak <= device_limit(bed, recipe) && verdict.host_peak_per_node <= host_limit(bed);
}

bool holds(Evaluator& evaluator, const Recipe& recipe, const Bed& bed) {
    const Bytes limit = device_limit(bed, recipe);
    for (const RingRole role : ring_roles(recipe)) {
        build_training_step(make_workload(bed.model, bed.cluster, recipe, role), evaluator.schedule);
        if (evaluator.reserved.run(evaluator.schedule, recipe.expandable_segments).peak_held > limit) return false;
    }
    return true;
}

Candidate evaluate(Evaluator& evaluator, const Recipe& recipe, const Bed& bed) {
    Candidate candidate;
    candidate.recipe = recipe;
    candidate.evaluation = evaluator.evaluate(bed.model, bed.cluster, recipe, bed.calibration);
    candidate.speed = tokens_per_second_per_gpu(recipe, candidate.evaluation.step.seconds);
    return candidate;
}

Ranking search(const SearchSpace& space, const Bed& bed, const SearchOptions& options) {
    // A fixed number of groups a round, so that the answer and the counts do not depend on the number of cores.
    constexpr std::size_t groups_per_round = 8;
    const std::vector<Batches> groups = groups_of(space);
    Leaders leaders(space.families.size(), options);
    Evaluators evaluators;
    Ranking ranking;
    ranking.considered = space.size();
    SearchCounts counts;
    for (std::size_t first = 0; first < groups.size(); first += groups_per_round) {
        const std::size_t last = std::min(groups.size(), first + groups_per_round);
        std::vector<Found> found(last - first);
        tbb::parallel_for(first, last, [&](std::size_t i) {
            const double threshold = leaders.threshold(space.structures[groups[i].first].family);
            found[i - first] = search_group(space, groups[i], bed, options, threshold, evaluators.local());
        });
        for (const Found& round : found) {
            for (const Candidate& candidate : round.best) leaders.offer(candidate);
            counts += round.counts;
        }
    }
    ranking.best = leaders.ranked();
    ranking.evaluated = counts.evaluated;
    ranking.fitting = counts.fitting;
    return ranking;
}

bool any_fits(const SearchSpace& space, const Bed& bed) {
    Evaluator evaluator;
    const std::vector<Batches> groups = groups_of(space);
    return std::any_of(groups.begin(), groups.end(), [&](const Batches& group) {
        return StructureSearch(space.structures[group.first], group.first, bed, evaluator).any_fits();
    });
}

}  // namespace headroom
