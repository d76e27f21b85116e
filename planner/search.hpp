// SPDX-License-Identifier: Apache-2.0
// The fastest recipes that fit: every candidate of a search space is considered, most are ruled out without a full
// evaluation, and none that could be among the best is.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "planner/evaluate.hpp"
#include "planner/search_space.hpp"

namespace headroom {

/// Memory that must stay free, as shares of what is usable on a GPU and on a node's host.
struct Margin {
    double device = 0.02;
    double host = 0.05;
};

/// The machine and the constants that all candidates share.
struct Bed {
    const Transformer& model;
    const Cluster& cluster;
    const Calibration& calibration;
    Margin margin;
};

struct Candidate {
    Recipe recipe;
    int departures = 0;   ///< settings that differ from the published recipe
    int chunk_steps = 0;  ///< doublings or halvings from the published chunk
    Evaluation evaluation;
    double speed = 0;  ///< tokens/s per GPU
    std::size_t family = 0, structure = 0;
    std::int64_t index = 0;  ///< in the structure
};

/// Faster first; between equals less memory, then the order of the space.
bool better(const Candidate& a, const Candidate& b);

/// Settings in which two recipes of one family differ.
int departures(const Recipe& recipe, const Recipe& published);
/// Factors of two between their FPDT chunks; 0 for other methods.
int chunk_steps(const Recipe& recipe, const Recipe& published);

/// Of candidates that are within `tie` of the fastest, those nearest to the published recipe (fewest settings, then
/// the nearest chunk); of these the better.
/// Nobody should leave what its authors have tested for a tenth of a percent.
const Candidate* choose(const std::vector<Candidate>& candidates, double tie);

struct Ranking {
    std::vector<Candidate> best;  ///< one of each family, best first
    std::int64_t considered = 0;  ///< all candidates of the space
    std::int64_t evaluated = 0;   ///< in full, for memory and time
    std::int64_t fitting = 0;     ///< of those evaluated, with the margin
};

struct SearchOptions {
    double tie = 0.005;        ///< speeds closer than this share count as equal
    std::size_t families = 5;  ///< how many of the best are asked for
    bool exhaustive = false;   ///< evaluate every candidate
};

Ranking search(const SearchSpace& space, const Bed& bed, const SearchOptions& options = {});

/// Whether any candidate of the space fits with the margin, by allocated bytes alone.
bool any_fits(const SearchSpace& space, const Bed& bed);

/// Allocated bytes, worst rank, and host bytes within the margin.
bool fits(const Verdict& verdict, const Recipe& recipe, const Bed& bed);
/// The same for the bytes that the caching allocator cannot give back; slower.
bool holds(Evaluator& evaluator, const Recipe& recipe, const Bed& bed);

Candidate evaluate(Evaluator& evaluator, const Recipe& recipe, const Bed& bed);

/// Tokens per second and GPU: the ranks of a context-parallel group share their tokens.
double tokens_per_second_per_gpu(const Recipe& recipe, Seconds step);

}  // namespace headroom
