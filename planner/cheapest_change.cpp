// SPDX-License-Identifier: Apache-2.0
#include "planner/cheapest_change.hpp"

namespace headroom {
namespace {

/// Share of the speed: one setting changed rather than three for a percent.
constexpr double few_settings_are_worth = 0.02;

/// Only what memory is spent on is free.
Settings fixed(const Recipe& recipe, Settings said) {
    said.method = recipe.method;
    said.context = recipe.context;
    said.batch = recipe.batch;
    said.ulysses = recipe.ulysses;
    said.ring = recipe.ring;
    said.implementation = recipe.implementation;
    said.attention_kernel = recipe.attention_kernel;
    return said;
}

Settings freed(Settings said) {
    said.heads_per_stage.reset();
    said.chunk_tokens.reset();
    said.checkpointing.reset();
    said.offload_block_inputs.reset();
    said.offload_optimizer.reset();
    said.offload_parameters.reset();
    said.offload_chunks.reset();
    said.tiling_norm.reset();
    said.tiling_mlp.reset();
    said.tiling_loss.reset();
    said.sharding_strategy.reset();
    return said;
}

std::optional<CheapestChange> search_for_change(const Plan& plan, const Settings& said,
                                                const PublishedRecipes& published, const TimeBasis& basis) {
    SearchSpace space = search_space(said, published, plan.model, plan.cluster);
    // Ties go to the recipe nearest to the published one; here, nearest to the plan.
    for (Structure& structure : space.structures) structure.published = plan.recipe;
    const Bed bed{plan.model, plan.cluster, *basis.calibration, {0, 0}};
    SearchOptions options;
    options.families = 1;
    options.tie = few_settings_are_worth;
    const Ranking ranking = search(space, bed, options);
    if (ranking.best.empty()) return std::nullopt;
    const Candidate& best = ranking.best.front();
    CheapestChange change{differences(plan.recipe, best.recipe),
                          make_plan(plan.model, plan.cluster, best.recipe, basis),
                          best.speed / plan.step->tokens_per_second_per_gpu - 1};
    if (!change.plan.fits) return std::nullopt;
    return change;
}

}  // namespace

std::optional<CheapestChange> cheapest_change(const Plan& plan, const Settings& said, const PublishedRecipes& published,
                                              const TimeBasis& basis) {
    if (!plan.step) return std::nullopt;
    const Settings kept = fixed(plan.recipe, said);
    if (auto change = search_for_change(plan, kept, published, basis)) return change;
    return search_for_change(plan, freed(kept), published, basis);
}

}  // namespace headroom
