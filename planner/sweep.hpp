// SPDX-License-Identifier: Apache-2.0
// A grid, evaluated on all cores and handed out as text in grid order while it runs.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "planner/evaluate.hpp"
#include "planner/grid.hpp"
#include "planner/step.hpp"

namespace headroom {

enum class SweepStatus { fits, does_not_fit, invalid };
inline constexpr std::array sweep_status_names{"fits", "does_not_fit", "invalid"};

struct SweepCounts {
    std::array<std::int64_t, 3> by_status{};
    std::int64_t& operator[](SweepStatus status) { return by_status[static_cast<std::size_t>(status)]; }
    std::int64_t operator[](SweepStatus status) const { return by_status[static_cast<std::size_t>(status)]; }
    std::int64_t rows() const { return by_status[0] + by_status[1] + by_status[2]; }
};

struct SweepSpeed {
    Seconds seconds, seconds_low, seconds_high;
    double tokens_per_second_per_gpu = 0, tokens_per_second_per_gpu_low = 0, tokens_per_second_per_gpu_high = 0;
    double mfu = 0;
    std::uint32_t domain = 0;  ///< bits of Domain; 0 = everything was measured like this
};

/// One configuration of a grid, and what became of it.
struct SweepRow {
    std::int64_t index = 0;
    const Transformer* model = nullptr;
    const Cluster* cluster = nullptr;
    Settings said;
    Recipe recipe;  ///< unless it is invalid, and so is what follows the reason
    SweepStatus status = SweepStatus::invalid;
    std::string reason;  ///< why it does not fit or is invalid
    std::string beyond_shipped_code;
    Bytes device_usable, device_peak, host_usable_per_node, host_peak_per_node;
    std::optional<SweepSpeed> speed;  ///< without rates for the attention kernel there is none
};

/// `bases` belong to the grid's clusters, one each.
SweepRow evaluate_row(const Grid& grid, const std::vector<TimeBasis>& bases, std::int64_t index, Evaluator& evaluator);

enum class RowFormat { csv, json_lines };

/// Rows as text: inputs, `status` (fits, does_not_fit, invalid) and `reason`, results.
class RowWriter {
 public:
    RowWriter(const Grid& grid, RowFormat format) : grid_(grid), format_(format) {}

    /// The heading of a CSV; nothing for JSON lines.
    std::string heading() const;
    /// Ended by a newline.
    std::string line(const SweepRow& row) const;

 private:
    const Grid& grid_;
    RowFormat format_;
};

/// Some rows of a sweep, as text or as they are.
struct SweepPiece {
    std::int64_t first = 0, last = 0;
    std::string text;
    std::vector<SweepRow> rows;
    SweepCounts counts;
    std::string first_invalid;  ///< reason of the first row that is
};

/// Evaluates row `index` into the piece; runs on many threads.
using RowMaker = std::function<void(std::int64_t index, Evaluator& evaluator, SweepPiece& piece)>;
/// Gets pieces in grid order and says whether to go on; all rows before `piece.last` are then handed out.
using PieceSink = std::function<bool(const SweepPiece& piece)>;

/// Rows `first` to `size`. Ends early, with whole rows, when `stop` becomes true. Holds a fixed number of rows at a
/// time.
SweepCounts run_sweep(std::int64_t size, const RowMaker& make, std::int64_t first, const std::atomic<bool>& stop,
                      const PieceSink& sink);

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
