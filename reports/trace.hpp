// SPDX-License-Identifier: Apache-2.0
// A timeline as Chrome's trace format (JSON object form), which chrome://tracing and ui.perfetto.dev open.
#pragma once

#include <iosfwd>
#include <string>
#include <string_view>
#include <vector>

namespace headroom {

/// Something that takes time on one track.
struct TraceSlice {
    std::string_view name;
    std::string_view category;
    int track = 0;  ///< index in Trace::tracks
    double start_seconds = 0;
    double duration_seconds = 0;
};

/// A value from this moment on.
struct TraceSample {
    double seconds = 0;
    double value = 0;
};

/// A row that shows a value over time. Its samples stand in the order of time.
struct TraceCounter {
    std::string_view name;
    std::string_view unit;
    std::vector<TraceSample> samples;
};

struct Trace {
    std::string process;              ///< the name above the tracks
    std::vector<std::string> tracks;  ///< shown from top to bottom
    std::vector<TraceSlice> slices;
    std::vector<TraceCounter> counters;
};

/// Writes the whole document. Times become microseconds, to the nanosecond.
void write_trace(std::ostream& out, const Trace& trace);

}  // namespace headroom
