// SPDX-License-Identifier: Apache-2.0
// A grid, evaluated on all cores and handed out as text in grid order while it runs.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "planner/evaluate.hpp"
#include "planner/grid.hpp"
#include "planner/step.hpp"

namespace headroom {

enum class RowFormat { csv, json_lines };

struct SweepCounts {
    std::int64_t fits = 0, does_not_fit = 0, invalid = 0;
    std::int64_t rows() const { return fits + does_not_fit + invalid; }
};

/// Turns points of a grid into rows: inputs, `status` (fits, does_not_fit, invalid) and `reason`, results.
class RowWriter {
 public:
    /// `bases` belong to the grid's clusters, one each.
    RowWriter(const Grid& grid, const std::vector<TimeBasis>& bases, RowFormat format)
        : grid_(grid), bases_(bases), format_(format) {}

    /// The heading of a CSV; nothing for JSON lines.
    std::string heading() const;
    /// Row `index`, ended by a newline.
    std::string row(std::int64_t index, Evaluator& evaluator, SweepCounts& counts) const;

 private:
    const Grid& grid_;
    const std::vector<TimeBasis>& bases_;
    RowFormat format_;
};

/// `sink` gets rows in grid order, from `first` on, and says whether to go on; `done` rows are then written in all.
using RowSink = std::function<bool(std::string_view rows, std::int64_t done)>;

/// Ends early, with whole rows, when `stop` becomes true. Holds a fixed number of rows at a time.
SweepCounts run_sweep(const Grid& grid, const RowWriter& writer, std::int64_t first, const std::atomic<bool>& stop,
                      const RowSink& sink);

/// What a file that was cut short holds: whole rows behind the heading, and the bytes up to the end of the last one.
struct WholeRows {
    bool heading = false;  ///< the file begins with the whole heading
    std::int64_t count = 0;
    std::int64_t bytes = 0;
    std::string first, last;  ///< with their newlines
};
/// Quoted fields may hold newlines (RFC 4180). Reads piece by piece: `read` returns an empty string at the end.
WholeRows whole_rows(const std::function<std::string()>& read, std::string_view heading);

}  // namespace headroom
