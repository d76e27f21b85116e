// SPDX-License-Identifier: Apache-2.0
// What a run trains on.
#pragma once

#include <cstdint>
#include <vector>

#include "models/workload.hpp"

namespace headroom {

/// Up to 1024 tokens, spread over the vocabulary, in an order that looks random: the sequence runs through them again
/// and again, so that each token says which comes next.
std::vector<std::int64_t> token_cycle(std::int64_t vocabulary);

/// The positions in the sequence of a rank's rows.
std::vector<std::int64_t> row_positions(const Workload& work, int rank);
/// The tokens of a rank's rows, then their labels: the same sequence however many ranks share it.
std::vector<std::int64_t> tokens_and_labels(const Workload& work, int rank);

}  // namespace headroom
