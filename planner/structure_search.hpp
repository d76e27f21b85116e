// SPDX-License-Identifier: Apache-2.0
// The options of one structure, searched.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "planner/search.hpp"

namespace headroom {

struct SearchCounts {
    std::int64_t evaluated = 0, fitting = 0;
    SearchCounts& operator+=(const SearchCounts& other) {
        evaluated += other.evaluated;
        fitting += other.fitting;
        return *this;
    }
};

/// Bytes that a candidate may use: the margin is taken off.
Bytes device_limit(const Bed& bed, const Recipe& recipe);
Bytes host_limit(const Bed& bed);

/// Pruning rests on two rules.
/// * Memory: states stay for the whole step, so a candidate needs at least what the same candidate with all states on
///   the host needs, and the states it has on the device beside that. One memory replay rules out a whole set of
///   states; time is not looked at before.
/// * Time: what one option costs hardly depends on the others, so the sum of single changes predicts every candidate.
///   Candidates are evaluated in that order until the prediction, less `slack` for what does not add up, falls behind.
class StructureSearch {
 public:
    StructureSearch(const Structure& structure, std::size_t number, const Bed& bed, Evaluator& evaluator)
        : structure_(structure), number_(number), bed_(bed), evaluator_(evaluator) {}

    std::optional<Candidate> exhaustive();
    /// Nothing when no candidate fits, or none is as fast as `threshold` (tokens/s per GPU).
    std::optional<Candidate> pruned(double threshold);
    /// Stops at the first that fits; the leanest are tried first.
    bool any_fits();

    const SearchCounts& counts() const { return counts_; }
    /// After pruned(): a candidate passed the memory rule, whatever its speed.
    bool something_fits() const { return something_fits_; }

 private:
    struct Survivor {
        Options options;
        double predicted = 0;  ///< seconds
    };

    Candidate evaluated(const Options& options);
    std::vector<Survivor> survivors(Checkpointing checkpointing);
    void memory_survivors(Options options, std::vector<Survivor>& list);
    bool predict(std::vector<Survivor>& list, double threshold);
    std::int64_t index_of(const Options& options) const;

    const Structure& structure_;
    std::size_t number_;
    const Bed& bed_;
    Evaluator& evaluator_;
    SearchCounts counts_;
    bool something_fits_ = false;
};

}  // namespace headroom
