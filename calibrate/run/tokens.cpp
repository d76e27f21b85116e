// SPDX-License-Identifier: Apache-2.0
#include "calibrate/run/tokens.hpp"

#include "calibrate/rank_groups.hpp"
#include "models/attention_step.hpp"

namespace headroom {

std::vector<std::int64_t> token_cycle(std::int64_t vocabulary) {
    std::int64_t count = 1;
    while (count < 1024 && 2 * count <= vocabulary) count *= 2;
    std::vector<std::int64_t> tokens;
    // A linear congruence of this form has the whole power of two for its period.
    for (std::int64_t i = 0, state = 0; i < count; ++i, state = (293 * state + 71) % count) {
        tokens.push_back(state * (vocabulary / count));
    }
    return tokens;
}

std::vector<std::int64_t> row_positions(const Workload& work, int rank) {
    std::vector<std::int64_t> positions;
    positions.reserve(static_cast<std::size_t>(work.tokens));
    for (std::int64_t row = 0; row < work.tokens; ++row) {
        positions.push_back(position_of(work, rank % work.recipe.ulysses, ring_rank(work.recipe, rank), row));
    }
    return positions;
}

std::vector<std::int64_t> tokens_and_labels(const Workload& work, int rank) {
    const std::vector<std::int64_t> cycle = token_cycle(work.model.vocabulary);
    const std::vector<std::int64_t> positions = row_positions(work, rank);
    std::vector<std::int64_t> all;
    all.reserve(2 * positions.size());
    for (const std::size_t ahead : {std::size_t{0}, std::size_t{1}}) {
        for (const std::int64_t position : positions) {
            all.push_back(cycle[(static_cast<std::size_t>(position) + ahead) % cycle.size()]);
        }
    }
    return all;
}

}  // namespace headroom
