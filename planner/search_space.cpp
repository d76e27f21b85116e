// SPDX-License-Identifier: Apache-2.0
#include "planner/search_space.hpp"

#include <algorithm>
#include <limits>

#include "models/constraints.hpp"
#include "models/shipped.hpp"

namespace headroom {
namespace {

constexpr std::int64_t largest_batch = 8;
constexpr std::int64_t shortest_chunk = 32 * kibi;

template <class T, class Keep>
std::vector<T> kept(const std::vector<T>& all, Keep keep) {
    std::vector<T> chosen;
    std::copy_if(all.begin(), all.end(), std::back_inserter(chosen), keep);
    return chosen;
}

/// What the user said, where it is an option at all; a value that is not on the list stands alone.
std::vector<Tiling> tilings(const std::vector<Tiling>& all, const std::optional<Tiling>& said, std::int64_t rows) {
    if (said) return {*said};
    // A tile as long as the rows of a rank is no tile.
    return kept(all, [&](const Tiling& tiling) { return tiling.kind != Tiling::Kind::tokens || tiling.tokens < rows; });
}

std::vector<Placement> placements(const std::vector<Placement>& all, const Settings& said) {
    std::vector<Placement> chosen = kept(all, [&](const Placement& place) {
        return (!said.checkpointing || place.checkpointing == *said.checkpointing) &&
               (!said.offload_block_inputs || place.block_inputs == *said.offload_block_inputs);
    });
    if (chosen.empty()) {
        const HostPlace place = said.offload_block_inputs.value_or(HostPlace::none);
        chosen.push_back({said.checkpointing.value_or(Checkpointing::full), place});
    }
    return chosen;
}

std::vector<StateChoice> states(const std::vector<StateChoice>& all, const Settings& said) {
    std::vector<StateChoice> chosen = kept(all, [&](const StateChoice& choice) {
        return (!said.sharding_strategy || choice.strategy == *said.sharding_strategy) &&
               (!said.offload_optimizer || choice.optimizer_on_host == *said.offload_optimizer) &&
               (!said.offload_parameters || choice.parameters_on_host == *said.offload_parameters);
    });
    // The code offers no such combination, but the user asks for it: planned as asked.
    if (chosen.empty()) {
        chosen.push_back({said.sharding_strategy.value_or(all.front().strategy), said.offload_optimizer.value_or(false),
                          said.offload_parameters.value_or(false)});
    }
    return chosen;
}

std::vector<bool> chunk_places(const Offered& choice, Method method, const std::optional<bool>& said) {
    if (said) return {*said};
    return method == Method::fpdt ? choice.chunks_on_host : std::vector<bool>{false};
}

template <class Choices, class Apply>
void drop_refused(Choices& choices, const Recipe& base, const Transformer& model, const Cluster& cluster, Apply apply) {
    Choices valid;
    for (const auto& choice : choices) {
        Recipe recipe = base;
        apply(recipe, choice);
        try {
            check(recipe, model, cluster);
            valid.push_back(choice);
        } catch (const Error&) {
            continue;
        }
    }
    choices = valid;
}

void apply(Recipe& recipe, const Placement& place) {
    recipe.checkpointing = place.checkpointing;
    recipe.offload.block_inputs = place.block_inputs;
}

void apply(Recipe& recipe, const StateChoice& choice) {
    recipe.sharding.strategy = choice.strategy;
    recipe.offload.optimizer = choice.optimizer_on_host;
    recipe.offload.parameters = choice.parameters_on_host;
}

/// As the authors of the code run it.
Recipe as_published(Recipe recipe, const Family& family, const Settings& said) {
    if (family.method == Method::upipe) recipe.heads_per_stage = said.heads_per_stage.value_or(recipe.ulysses);
    if (family.method == Method::fpdt) recipe.chunk_tokens = said.chunk_tokens.value_or(Tokens{64 * kibi});
    recipe.batch = said.batch.value_or(1);
    return recipe;
}

class Enumeration {
 public:
    Enumeration(const Settings& said, const PublishedRecipes& published, const Transformer& model,
                const Cluster& cluster, const std::vector<Method>& methods)
        : said_(said), published_(published), model_(model), cluster_(cluster), methods_(methods) {}

    SearchSpace all() {
        for (std::size_t i = 0; i < method_names.size(); ++i) {
            const auto method = static_cast<Method>(i);
            if (!is_asked(method)) continue;
            std::vector<Implementation> codes = searched_implementations(method);
            if (said_.implementation) codes = {*said_.implementation};
            for (const Implementation code : codes) degrees(method, code);
        }
        return std::move(space_);
    }

 private:
    bool is_asked(Method method) const {
        if (said_.method) return *said_.method == method;
        return methods_.empty() || std::find(methods_.begin(), methods_.end(), method) != methods_.end();
    }

    void degrees(Method method, Implementation code) {
        const bool heads = method != Method::native && method != Method::ring;
        const bool rings = method != Method::ulysses && method != Method::fpdt;
        std::vector<int> ulysses{1};
        if (heads) ulysses = valid_ulysses_degrees(model_);
        if (said_.ulysses) ulysses = {*said_.ulysses};
        for (const int inner : ulysses) {
            if (!said_.ulysses && cluster_.gpus() % inner != 0) continue;
            const int most = rings ? cluster_.gpus() / std::max(1, inner) : 1;
            std::vector<int> outer;
            for (int ring = 1; ring <= most; ++ring) {
                if (cluster_.gpus() / inner % ring == 0) outer.push_back(ring);
            }
            if (said_.ring) outer = {*said_.ring};
            for (const int ring : outer) {
                if (!is_duplicate(method, inner, ring)) family({method, code, inner, ring});
            }
        }
    }

    /// A ring is USP with a Ulysses degree of one, Ulysses is USP with a ring of one; UPipe needs heads to exchange.
    bool is_duplicate(Method method, int ulysses, int ring) const {
        if (said_.ulysses && said_.ring) return false;
        if (method == Method::usp) {
            return !said_.method &&
                   ((ulysses == 1 && is_asked(Method::ring)) || (ring == 1 && is_asked(Method::ulysses)));
        }
        if (method == Method::upipe) return ulysses == 1 && !said_.ulysses;
        return false;
    }

    void family(const Family& family) {
        const Offered choice = offered(family.method, family.implementation);
        std::vector<std::optional<int>> stages{said_.heads_per_stage};
        if (family.method == Method::upipe && choice.any_heads_per_stage && !said_.heads_per_stage) {
            stages.clear();
            for (const int heads : valid_heads_per_stage(model_, family.ulysses)) stages.emplace_back(heads);
        }
        std::vector<std::optional<Tokens>> chunks{said_.chunk_tokens};
        if (family.method == Method::fpdt && !said_.chunk_tokens) {
            chunks.clear();
            for (std::int64_t chunk = shortest_chunk; chunk <= longest_chunk.value; chunk *= 2) {
                chunks.emplace_back(Tokens{chunk});
            }
        }
        for (const auto& heads : stages) {
            for (const auto& chunk : chunks) {
                for (std::int64_t batch = 1; batch <= largest_batch; batch *= 2) {
                    structure(family, choice, heads, chunk, said_.batch.value_or(batch));
                    if (said_.batch) break;
                }
            }
        }
    }

    void structure(const Family& family, const Offered& choice, std::optional<int> heads, std::optional<Tokens> chunk,
                   std::int64_t batch) {
        Settings settings = said_;
        settings.method = family.method;
        settings.implementation = family.implementation;
        settings.ulysses = family.ulysses;
        settings.ring = family.ring;
        settings.heads_per_stage = heads;
        settings.chunk_tokens = chunk;
        settings.batch = batch;
        Structure found;
        const Settings& published = published_[static_cast<std::size_t>(family.method)];
        try {
            found.base = resolve(settings, published, model_, cluster_);
        } catch (const Error& error) {
            if (!space_.refusal) space_.refusal = error;
            return;
        }
        found.published = as_published(found.base, family, said_);
        const std::int64_t rows = found.base.batch * found.base.context.value / found.base.context_parallel();
        found.placements = placements(choice.placements, said_);
        found.states = states(choice.states, said_);
        found.chunks_on_host = chunk_places(choice, family.method, said_.offload_chunks);
        found.norm = tilings(choice.norm, said_.tiling_norm, rows);
        found.mlp = tilings(choice.mlp, said_.tiling_mlp, rows);
        found.loss = tilings(choice.loss, said_.tiling_loss, rows);
        // The rules for placements and states do not cross.
        const auto use = [](Recipe& recipe, const auto& option) { apply(recipe, option); };
        found.base.offload.optimizer = found.base.offload.parameters = false;
        drop_refused(found.placements, found.base, model_, cluster_, use);
        apply(found.base, found.placements.empty() ? Placement{} : found.placements.front());
        drop_refused(found.states, found.base, model_, cluster_, use);
        if (found.size() == 0) return;
        if (found.base.context > implementation_ceiling(found.base)) {
            space_.beyond.push_back(std::move(found));
            return;
        }
        found.family = family_index(family);
        space_.structures.push_back(std::move(found));
    }

    std::size_t family_index(const Family& family) {
        auto& families = space_.families;
        const auto known = std::find(families.begin(), families.end(), family);
        if (known != families.end()) return static_cast<std::size_t>(known - families.begin());
        families.push_back(family);
        return families.size() - 1;
    }

    const Settings& said_;
    const PublishedRecipes& published_;
    const Transformer& model_;
    const Cluster& cluster_;
    const std::vector<Method>& methods_;
    SearchSpace space_;
};

std::int64_t length(const auto& list) { return static_cast<std::int64_t>(list.size()); }

}  // namespace

std::int64_t Structure::size() const {
    return length(placements) * length(states) * length(chunks_on_host) * length(norm) * length(mlp) * length(loss);
}

Options Structure::options(std::int64_t index) const {
    Options options;
    const auto digit = [&](std::uint8_t& place, const auto& list) {
        place = static_cast<std::uint8_t>(index % length(list));
        index /= length(list);
    };
    digit(options.loss, loss);
    digit(options.mlp, mlp);
    digit(options.norm, norm);
    digit(options.chunks, chunks_on_host);
    digit(options.states, states);
    digit(options.placement, placements);
    return options;
}

Recipe Structure::recipe(const Options& options) const {
    Recipe recipe = base;
    apply(recipe, placements[options.placement]);
    apply(recipe, states[options.states]);
    recipe.offload.chunks = chunks_on_host[options.chunks];
    recipe.tiling.norm = norm[options.norm];
    recipe.tiling.mlp = mlp[options.mlp];
    recipe.tiling.loss = loss[options.loss];
    return recipe;
}

std::int64_t SearchSpace::size() const {
    std::int64_t total = 0;
    for (const Structure& structure : structures) total += structure.size();
    return total;
}

SearchSpace search_space(const Settings& said, const PublishedRecipes& published, const Transformer& model,
                         const Cluster& cluster, const std::vector<Method>& methods) {
    return Enumeration(said, published, model, cluster, methods).all();
}

}  // namespace headroom
