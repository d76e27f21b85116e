// SPDX-License-Identifier: Apache-2.0
#include "planner/sweep.hpp"

#include <oneapi/tbb/enumerable_thread_specific.h>
#include <oneapi/tbb/info.h>
#include <oneapi/tbb/parallel_pipeline.h>

#include <algorithm>

namespace headroom {
namespace {

namespace tbb = oneapi::tbb;

constexpr std::int64_t rows_per_piece = 32;

}  // namespace

SweepCounts run_sweep(std::int64_t size, const RowMaker& make, std::int64_t first, const std::atomic<bool>& stop,
                      const PieceSink& sink) {
    SweepCounts total;
    std::int64_t next = first;
    std::atomic<bool> refused = false;
    tbb::enumerable_thread_specific<Evaluator> evaluators;
    const auto cut = [&](tbb::flow_control& control) {
        SweepPiece piece;
        if (next >= size || stop || refused) {
            control.stop();
            return piece;
        }
        piece.first = next;
        piece.last = next = std::min(size, next + rows_per_piece);
        return piece;
    };
    const auto evaluate = [&](SweepPiece piece) {
        Evaluator& evaluator = evaluators.local();
        for (std::int64_t i = piece.first; i < piece.last; ++i) make(i, evaluator, piece);
        return piece;
    };
    const auto hand_out = [&](const SweepPiece& piece) {
        if (refused) return;
        for (std::size_t i = 0; i < total.by_status.size(); ++i) total.by_status[i] += piece.counts.by_status[i];
        if (!sink(piece)) refused = true;
    };
    // Pieces in flight bound the memory, however slow the reader is.
    const auto in_flight = static_cast<std::size_t>(8 * std::max(1, tbb::info::default_concurrency()));
    tbb::parallel_pipeline(in_flight,
                           tbb::make_filter<void, SweepPiece>(tbb::filter_mode::serial_in_order, cut) &
                               tbb::make_filter<SweepPiece, SweepPiece>(tbb::filter_mode::parallel, evaluate) &
                               tbb::make_filter<SweepPiece, void>(tbb::filter_mode::serial_in_order, hand_out));
    return total;
}

WholeRows whole_rows(const std::function<std::string()>& read, std::string_view heading) {
    WholeRows found;
    std::string row;
    bool quoted = false;
    bool in_heading = !heading.empty();
    found.heading = heading.empty();
    for (std::string piece = read(); !piece.empty(); piece = read()) {
        for (const char c : piece) {
            row += c;
            if (c == '"') quoted = !quoted;
            if (c != '\n' || quoted) continue;
            found.bytes += static_cast<std::int64_t>(row.size());
            if (in_heading) {
                found.heading = row == heading;
                in_heading = false;
                if (!found.heading) return found;
            } else {
                if (found.count++ == 0) found.first = row;
                found.last = row;
            }
            row.clear();
        }
    }
    return found;
}

}  // namespace headroom
