// SPDX-License-Identifier: Apache-2.0
// What a sweep of any size comes to: counts, the fastest and the leanest configuration of each method at each context.
// Grows with methods and contexts, not with rows.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "planner/sweep.hpp"

namespace headroom {

/// One method at one context on one machine.
struct SweepCell {
    SweepCounts counts;
    std::optional<SweepRow> fastest;  ///< of those that fit; without step times the one that needs least
    std::optional<Bytes> least_need;  ///< device bytes of the leanest one, whether it fits or not
};

/// One model on one cluster of one size.
struct SweepBench {
    const Transformer* model = nullptr;
    const Cluster* cluster = nullptr;
    SweepCounts counts;
    std::array<std::map<Tokens, SweepCell>, method_names.size()> methods;
};

/// One value of one axis of the grid.
struct SweepChoice {
    std::string value;  ///< as typed after --set
    SweepCounts counts;
    Tokens longest;         ///< that fits; 0 where none does
    std::int64_t wins = 0;  ///< contexts, on all machines, at which the fastest configuration has this value
};

struct SweepSummary {
    SweepCounts counts;
    std::vector<SweepBench> benches;                ///< models times clusters, in grid order
    std::vector<std::vector<SweepChoice>> choices;  ///< by axis and value
    /// Rows by reason. Amounts are left out of shortages, and reasons behind the first hundred go under "".
    std::map<std::string, std::int64_t> shortages, rules;
    std::map<std::string, std::int64_t> beyond_shipped_code;  ///< fitting rows by reason
    std::int64_t outside_domain = 0;  ///< rows whose step time leaves what the constants were measured on
    std::uint32_t domain = 0;         ///< in which ways, bits of Domain
};

/// Takes rows in grid order; equal rows count as the first of them.
class SweepSummarizer {
 public:
    explicit SweepSummarizer(const Grid& grid);
    void add(const SweepRow& row);
    SweepSummary take();

 private:
    const Grid& grid_;
    SweepSummary summary_;
};

/// Allocated at the peak and outside the allocator.
Bytes device_need(const SweepRow& row);
/// The fastest of all methods at a context; nullptr where none fits.
const SweepRow* fastest_at(const SweepBench& bench, Tokens context);
/// At the longest context that the method fits; nullptr where none fits.
const SweepRow* longest_of(const SweepBench& bench, Method method);
/// All contexts of a bench, ascending.
std::vector<Tokens> contexts_of(const SweepBench& bench);

}  // namespace headroom
