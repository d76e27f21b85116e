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
    std::string name;
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
    std::string name;
    std::string unit;
    std::vector<TraceSample> samples;
};

/// An arrow from a moment on one track to a moment on another; both must lie within slices.
struct TraceFlow {
    int from_track = 0;
    double from_seconds = 0;
    int to_track = 0;
    double to_seconds = 0;
};

struct Trace {
    std::string process;              ///< the name above the tracks
    std::vector<std::string> tracks;  ///< shown from top to bottom
    std::vector<TraceSlice> slices;
    std::vector<TraceCounter> counters;
    std::vector<TraceFlow> flows;
};

/// Writes the whole document. Times become microseconds, to the nanosecond; slices that touch still touch then.
void write_trace(std::ostream& out, const Trace& trace);

}  // namespace headroom
