// SPDX-License-Identifier: Apache-2.0
#include "planner/max_context.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "models/constraints.hpp"
#include "models/error.hpp"
#include "planner/evaluate.hpp"

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

 private:
    const Settings& settings_;
    const Settings& published_;
    const Transformer& model_;
    const Cluster& cluster_;
    Evaluator evaluator_;
};

/// The shipped FPDT scripts pass a flag beyond 4M tokens that the program does not know, so nothing longer runs as is.
constexpr Tokens fpdt_script_ceiling{4 * mebi};
/// `which` length the plan is of.
std::string limit(const Plan& next, const char* which) {
    if (!next.device.fits) {
        return fmt::format("GPU memory ({}): the {} length needs {:.2f} GiB of {:.2f}", next.device.phase, which,
                           in_gib(next.device.peak + next.device.unreturnable), in_gib(next.device.usable));
    }
    return fmt::format("host memory: the {} length needs {:.0f} GiB of {:.0f} on each node", which,
                       in_gib(next.host.peak_per_node), in_gib(next.host.usable_per_node));
}

}  // namespace

Tokens implementation_ceiling(const Recipe& recipe) {
    const bool script = recipe.method == Method::fpdt && recipe.implementation == Implementation::megatron_deepspeed;
    return script ? fpdt_script_ceiling : longest_context;
}

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
    const std::int64_t steps = search.longest(granule, ceiling) / granule;
    // The fast replay does not see what sticks in the allocator: step back to the longest whole plan that fits.
    const auto fits = [&](std::int64_t step) {
        result.plan = search.plan_at(step * granule);
        result.recipe = result.plan.recipe;
        return result.plan.fits;
    };
    std::int64_t context = 0;
    if (steps > 0 && fits(steps)) {
        context = steps * granule;
    } else if (steps > 0) {
        std::int64_t bad = steps;
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
        context = good * granule;
    }
    result.context = Tokens{context};
    if (context == 0) {
        result.plan = search.plan_at(granule);
        result.recipe = result.plan.recipe;
        result.limited_by = "nothing fits: " + limit(result.plan, "shortest");
        return result;
    }
    search.add_step_to(result.plan, basis);
    if (context / granule == ceiling) {
        result.limited_by = ceiling * granule + granule > longest_context.value
                                ? "the longest context that is counted, 2^40"
                                : std::string(implementation_ceiling_reason);
        return result;
    }
    result.limited_by = limit(search.plan_at(context + granule), "next");
    return result;
}

}  // namespace headroom
