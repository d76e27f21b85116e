// SPDX-License-Identifier: Apache-2.0
// Why a recipe was chosen: what each choice costs and buys, always as the change of the whole step's peak and time.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "planner/search.hpp"

namespace headroom {

/// A setting that two recipes have differently, as recipe files write it.
struct Difference {
    std::string key, from, to;
};
std::vector<Difference> differences(const Recipe& from, const Recipe& to);

/// Another recipe beside the chosen one. Changes are the other's less the chosen one's.
struct Alternative {
    std::vector<Difference> changed;
    Candidate candidate;
    Bytes peak_change;        ///< of the step's peak on the worst rank
    double peak_share = 0;    ///< of the chosen recipe's peak
    Bytes host_change;        ///< per node
    double speed_change = 0;  ///< of the chosen recipe's tokens/s per GPU
    bool fits = false;        ///< with the margin
    Bytes device_short;       ///< beyond what the margin leaves; 0 when it fits there
    Bytes host_short;
};
Alternative compare(const Candidate& chosen, const Candidate& other, const Bed& bed, Evaluator& evaluator);

/// Every option of the chosen recipe's structure turned, one at a time.
std::vector<Alternative> turned_options(const Candidate& chosen, const Structure& structure, const Bed& bed,
                                        Evaluator& evaluator);

/// Memory and speed over heads per stage or FPDT's chunk, everything else as chosen.
struct Curve {
    std::string key;
    struct Point {
        std::int64_t value = 0;
        Candidate candidate;
        bool fits = false, chosen = false;
        bool sticks = false;  ///< allocated bytes fit, what the allocator cannot give back does not
        bool shipped = true;  ///< false: the shipped code does not run it, its buffers would be these
    };
    std::vector<Point> points;
};
std::optional<Curve> curve(const Candidate& chosen, const Bed& bed, Evaluator& evaluator);

/// The longest context, in steps of `step`, at which exactly this recipe fits with the margin; 0 when none does.
Tokens longest_context_of(Recipe recipe, Tokens step, const Bed& bed, Evaluator& evaluator);

}  // namespace headroom
