// SPDX-License-Identifier: Apache-2.0
#include "reports/trace.hpp"

#include <fmt/format.h>

#include <cmath>
#include <cstdint>
#include <iterator>
#include <ostream>

namespace headroom {

namespace {

/// A JSON string with its quotes. UTF-8 passes through.
std::string quoted(std::string_view text) {
    std::string result = "\"";
    for (const char c : text) {
        switch (c) {
            case '"':
                result += "\\\"";
                break;
            case '\\':
                result += "\\\\";
                break;
            case '\n':
                result += "\\n";
                break;
            case '\t':
                result += "\\t";
                break;
            default:
                if (static_cast<unsigned char>(c) < 0x20) {
                    result += fmt::format("\\u{:04x}", static_cast<unsigned>(static_cast<unsigned char>(c)));
                } else {
                    result += c;
                }
        }
    }
    return result + '"';
}

std::int64_t nanoseconds(double seconds) { return std::llround(seconds * 1e9); }

/// "1500.000"
std::string microseconds(std::int64_t nanoseconds) {
    return fmt::format("{}.{:03}", nanoseconds / 1000, nanoseconds % 1000);
}

class Events {
 public:
    explicit Events(std::ostream& out) : out_(out) { out_ << "{\"displayTimeUnit\":\"ms\",\"traceEvents\":["; }
    void finish() { out_ << "\n]}\n"; }

    template <class... Arguments>
    void add(fmt::format_string<Arguments...> form, Arguments&&... arguments) {
        out_ << (first_ ? "\n" : ",\n");
        first_ = false;
        fmt::format_to(std::ostreambuf_iterator<char>(out_), form, std::forward<Arguments>(arguments)...);
    }

 private:
    std::ostream& out_;
    bool first_ = true;
};

}  // namespace

void write_trace(std::ostream& out, const Trace& trace) {
    Events events(out);
    events.add(R"({{"ph":"M","pid":0,"name":"process_name","args":{{"name":{}}}}})", quoted(trace.process));
    for (std::size_t i = 0; i < trace.tracks.size(); ++i) {
        events.add(R"({{"ph":"M","pid":0,"tid":{},"name":"thread_name","args":{{"name":{}}}}})", i,
                   quoted(trace.tracks[i]));
        events.add(R"({{"ph":"M","pid":0,"tid":{},"name":"thread_sort_index","args":{{"sort_index":{}}}}})", i, i);
    }
    for (const TraceSlice& slice : trace.slices) {
        const std::int64_t start = nanoseconds(slice.start_seconds);
        const std::int64_t end = nanoseconds(slice.start_seconds + slice.duration_seconds);
        events.add(R"({{"ph":"X","pid":0,"tid":{},"ts":{},"dur":{},"cat":{},"name":{}}})", slice.track,
                   microseconds(start), microseconds(end - start), quoted(slice.category), quoted(slice.name));
    }
    for (const TraceCounter& counter : trace.counters) {
        const std::string name = quoted(counter.name);
        const std::string unit = quoted(counter.unit);
        for (const TraceSample& sample : counter.samples) {
            events.add(R"({{"ph":"C","pid":0,"ts":{},"name":{},"args":{{{}:{}}}}})",
                       microseconds(nanoseconds(sample.seconds)), name, unit, sample.value);
        }
    }
    for (std::size_t i = 0; i < trace.flows.size(); ++i) {
        const TraceFlow& flow = trace.flows[i];
        events.add(R"({{"ph":"s","pid":0,"tid":{},"ts":{},"id":{},"cat":"flow","name":"then"}})", flow.from_track,
                   microseconds(nanoseconds(flow.from_seconds)), i);
        events.add(R"({{"ph":"f","bp":"e","pid":0,"tid":{},"ts":{},"id":{},"cat":"flow","name":"then"}})",
                   flow.to_track, microseconds(nanoseconds(flow.to_seconds)), i);
    }
    events.finish();
}

}  // namespace headroom
