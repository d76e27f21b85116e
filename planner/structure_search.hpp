// SPDX-License-Identifier: Apache-2.0
// The options of one structure, searched.
#pragma once

#include <cstdint>
#include <optional>
#include <unordered_map>
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
///   the host needs, and the states it has on the device beside that. And block inputs on the host never need more of
///   the device than on the device, which never needs more than no checkpointing.
/// * Time: what one option costs hardly depends on the others, so the sum of single changes predicts every candidate.
///   Candidates are evaluated in that order until the prediction, less a slack for what does not add up, falls behind.
class StructureSearch {
 public:
    StructureSearch(const Structure& structure, std::size_t number, const Bed& bed, Evaluator& evaluator);

    std::optional<Candidate> exhaustive(double tie);
    /// Nothing when no candidate fits, or none is as fast as `threshold` (tokens/s per GPU).
    std::optional<Candidate> pruned(double threshold, double tie);
    /// Stops at the first that fits; the leanest are tried first.
    bool any_fits();

    const SearchCounts& counts() const { return counts_; }
    /// After pruned(): a candidate passed the memory rule, whatever its speed.
    bool something_fits() const { return something_fits_; }

 private:
    struct Predicted {
        Options options;
        double least_seconds = 0;
        int departures = 0;
    };
    /// Memory of an option set whose states are on the host as far as its strategy allows.
    struct Lean {
        bool known = false;
        Verdict verdict;
    };

    Candidate evaluated(const Options& options);
    /// The candidate when it fits; evaluated and counted once.
    std::optional<Candidate> fitting(const Options& options);
    std::int64_t index_of(const Options& options) const;
    const Verdict& lean_verdict(Options options);
    bool may_fit(const Options& options);
    bool anything_may_fit();
    bool attention_decides(const Options& options);
    bool keeping_everything_fails(std::size_t placement);
    void predict(Checkpointing checkpointing, double threshold, std::vector<Predicted>& list);

    const Structure& structure_;
    std::size_t number_;
    const Bed& bed_;
    Evaluator& evaluator_;
    Bytes device_limit_, host_limit_;
    std::vector<Bytes> kept_states_;         ///< by index of states: bytes on the device that could be on the host
    std::vector<std::uint8_t> lean_states_;  ///< by index of states: the leanest of the same strategy
    std::vector<Lean> lean_;                 ///< by index_of
    std::unordered_map<std::int64_t, std::optional<Candidate>> seen_;  ///< by index_of
    SearchCounts counts_;
    bool something_fits_ = false;
};

}  // namespace headroom
