// SPDX-License-Identifier: Apache-2.0
#include "planner/max_context.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "models/constraints.hpp"
#include "models/error.hpp"
#include "models/shipped.hpp"
#include "planner/evaluate.hpp"
#include "reports/numbers.hpp"

namespace headroom {
namespace {

/// Attention kernels work in tiles of 128 rows; contexts between are of no use to anyone.
constexpr std::int64_t rows_per_tile = 128;
/// The last steps are searched one by one: tile counts and power-of-two chunks make memory slightly uneven.
constexpr std::int64_t uneven_steps = 8;

class Search {
 public:
    Search(const Settings& settings, const Settings& published, const Transformer& model, const Cluster& cluster)
        : settings_(settings), published_(published), model_(model), cluster_(cluster) {}

    Recipe recipe_at(std::int64_t context) const {
        Settings settings = settings_;
        settings.context = Tokens{context};
        return resolve(settings, published_, model_, cluster_);
    }

    Plan plan_at(std::int64_t context) { return make_plan(model_, cluster_, recipe_at(context), {}, evaluator_); }
    void add_step_to(Plan& plan, const TimeBasis& basis) { add_step(plan, basis, evaluator_); }

    Verdict verdict_at(std::int64_t context) { return evaluator_.verdict(model_, cluster_, recipe_at(context)); }

    /// As many granules as fit, up to `most` of them, with the plan of that length; 0 when none do. The fast replay
    /// does not see what sticks in the allocator: step back to the longest whole plan that fits.
    std::int64_t longest_whole(std::int64_t granule, std::int64_t most, Plan& plan) {
        const auto fits = [&](std::int64_t step) {
            plan = plan_at(step * granule);
            return plan.fits;
        };
        std::int64_t bad = longest(granule, most) / granule;
        if (bad == 0 || fits(bad)) return bad;
        std::int64_t back = 1;
        while (bad - back > 0 && !fits(bad - back)) {
            bad -= back;
            back *= 2;
        }
        std::int64_t good = std::max<std::int64_t>(0, bad - back);
        while (bad - good > 1) {
            const std::int64_t middle = good + (bad - good) / 2;
            (fits(middle) ? good : bad) = middle;
        }
        if (good > 0) fits(good);
        return good;
    }

 private:
    /// Largest multiple of `granule`, up to `most` of them, that the fast replay accepts; 0 when none.
    std::int64_t longest(std::int64_t granule, std::int64_t most) {
        if (!verdict_at(granule).fits()) return 0;
        std::int64_t good = 1;
        std::int64_t bad = 2;
        while (bad <= most && verdict_at(bad * granule).fits()) {
            good = bad;
            bad *= 2;
        }
        bad = std::min(bad, most + 1);
        while (bad - good > 1) {
            const std::int64_t middle = good + (bad - good) / 2;
            (verdict_at(middle * granule).fits() ? good : bad) = middle;
        }
        for (std::int64_t step = uneven_steps; step > 0; --step) {
            if (good + step <= most && verdict_at((good + step) * granule).fits()) return (good + step) * granule;
        }
        return good * granule;
    }

    const Settings& settings_;
    const Settings& published_;
    const Transformer& model_;
    const Cluster& cluster_;
    Evaluator evaluator_;
};

/// `which` length the plan is of.
std::string limit(const Plan& next, const char* which) {
    if (!next.device.fits) {
        return fmt::format("GPU memory ({}): the {} length needs {:.2f} GiB of {:.2f}", next.device.phase, which,
                           in_gib(next.device.peak + next.device.unreturnable), in_gib(next.device.usable));
    }
    return fmt::format("host memory: the {} length needs {:.0f} GiB of {:.0f} on each node", which,
                       in_gib(next.host.peak_per_node), in_gib(next.host.usable_per_node));
}

/// `next` is the first length that the code does not run.
std::string shipped_code_limit(const Recipe& next, const Cluster& cluster, Tokens by_memory) {
    return fmt::format("shipped code: {}; memory alone would allow {} tokens", beyond_shipped_code(next, cluster),
                       with_separators(by_memory.value));
}

}  // namespace

MaxContext max_context(const Settings& settings, const Settings& published, const Transformer& model,
                       const Cluster& cluster, const TimeBasis& basis) {
    MaxContext result;
    result.method = settings.method.value_or(published.method.value_or(Method::ulysses));
    Search search(settings, published, model, cluster);
    std::int64_t granule = 0;
    try {
        // Any context will do to resolve the degrees; its granule is then that of all contexts.
        Settings probe = settings;
        const std::int64_t chunk = settings.chunk_tokens.value_or(published.chunk_tokens.value_or(Tokens{1})).value;
        probe.context = Tokens{std::lcm(std::lcm(std::int64_t{cluster.gpus()} * 2, std::max<std::int64_t>(1, chunk)),
                                        std::int64_t{cluster.gpus()} * rows_per_tile)};
        const Recipe recipe = resolve(probe, published, model, cluster);
        granule = std::lcm(context_granule(recipe).value, std::int64_t{recipe.context_parallel()} * rows_per_tile);
    } catch (const Error& error) {
        result.limited_by = error.what();
        return result;
    }
    result.valid = true;
    const std::int64_t ceiling = implementation_ceiling(search.recipe_at(granule)).value / granule;
    const std::int64_t steps = search.longest_whole(granule, ceiling, result.plan);
    result.context = result.by_memory = Tokens{steps * granule};
    if (steps == 0) result.plan = search.plan_at(granule);
    result.recipe = result.plan.recipe;
    if (steps == 0) {
        result.limited_by = "nothing fits: " + limit(result.plan, "shortest");
        return result;
    }
    search.add_step_to(result.plan, basis);
    const bool code_ends = (ceiling + 1) * granule <= longest_context.value;
    if (steps < ceiling) {
        result.limited_by = limit(search.plan_at((steps + 1) * granule), "next");
    } else if (code_ends) {
        Plan longer;
        result.by_memory = Tokens{search.longest_whole(granule, longest_context.value / granule, longer) * granule};
        result.limited_by = shipped_code_limit(search.recipe_at((steps + 1) * granule), cluster, result.by_memory);
    } else {
        result.limited_by = "the longest context that is counted, 2^40";
    }
    return result;
}

}  // namespace headroom
