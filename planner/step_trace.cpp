// SPDX-License-Identifier: Apache-2.0
// A simulated step as a trace: tracks, slices, arrows, and memory as it stands when each op starts.
#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "planner/simulation.hpp"
#include "reports/numbers.hpp"

namespace headroom {
namespace {

constexpr double nanosecond = 1e-9;
/// A cut is drawn as wide as this share of what is shown.
constexpr double mark_share = 0.02;

struct Cut {
    double from, to;      ///< seconds of the step
    double width;         ///< seconds drawn instead
    std::int64_t blocks;  ///< left out
};

/// Seconds of the step to seconds of the trace.
class Clock {
 public:
    explicit Clock(std::vector<Cut> cuts) : cuts_(std::move(cuts)) {}

    const std::vector<Cut>& cuts() const { return cuts_; }
    double shown(double seconds) const {
        double lost = 0;
        for (const Cut& cut : cuts_) {
            if (seconds <= cut.from) break;
            const double inside = std::min(seconds, cut.to) - cut.from;
            lost += inside * (1 - cut.width / (cut.to - cut.from));
        }
        return seconds - lost;
    }
    bool hidden(double seconds) const {
        return std::any_of(cuts_.begin(), cuts_.end(),
                           [=](const Cut& cut) { return cut.from < seconds && seconds < cut.to; });
    }
    /// What is left of [start, end) outside of the cuts, in seconds of the trace; empty when start is not before end.
    struct Piece {
        double start, end;
    };
    Piece piece(double start, double end) const {
        for (const Cut& cut : cuts_) {
            if (start < cut.from && end > cut.from && end <= cut.to) end = cut.from;
            if (start >= cut.from && start < cut.to) start = std::min(cut.to, end);
        }
        return {shown(start), shown(end)};
    }

 private:
    std::vector<Cut> cuts_;
};

bool is_block(const Segment& segment) { return std::string_view(segment.name).find("block") != std::string_view::npos; }

Clock make_clock(const Simulation& simulation, std::int64_t shown_blocks) {
    std::vector<Cut> cuts;
    double kept = simulation.plan.step->time.seconds.value;
    for (const bool forward : {true, false}) {
        std::vector<const Span*> blocks;
        for (const Span& span : simulation.spans) {
            const Segment& segment = simulation.schedule.segments[span.segment];
            if (is_block(segment) && (segment.phase == Phase::forward) == forward) blocks.push_back(&span);
        }
        const auto count = static_cast<std::int64_t>(blocks.size());
        if (shown_blocks >= count) continue;
        const Cut cut{blocks[static_cast<std::size_t>(shown_blocks - 1)]->end, blocks.back()->end, 0,
                      count - shown_blocks};
        kept -= cut.to - cut.from;
        cuts.push_back(cut);
    }
    for (Cut& cut : cuts) cut.width = std::min(mark_share * kept, cut.to - cut.from);
    return Clock(std::move(cuts));
}

enum Track : int { steps, compute, ulysses, ring, all_gather, reduce_scatter, to_gpu, to_host, host };
const std::array<const char*, 9> track_names{"step",
                                             "compute",
                                             "all-to-all (Ulysses)",
                                             "ring send and receive",
                                             "gather weights (FSDP)",
                                             "reduce gradients (FSDP)",
                                             "copies to the GPU",
                                             "copies to the host",
                                             "host at work"};

int track_of(const Slice& slice) {
    if (slice.kind == Slice::Kind::on_host) return host;
    return compute + static_cast<int>(slice.stream);  // in the order of Stream
}

std::string span_name(const Simulation& simulation, const Span& span, Phase phase) {
    const Segment& segment = simulation.schedule.segments[span.segment];
    if (!is_block(segment)) return segment.name;
    const std::int64_t layers = simulation.plan.model.layers;
    const std::string_view name = segment.name;
    std::int64_t block = 0;
    if (name == "last block") block = layers - 1;
    if (name == "middle blocks") {
        block = segment.phase == Phase::forward ? 1 + span.repetition : layers - 2 - span.repetition;
    }
    return fmt::format("block {}: {}", block, to_string(phase));
}

void add_spans(Trace& trace, const Simulation& simulation, const Clock& clock) {
    for (const Span& span : simulation.spans) {
        double begin = span.begin;
        for (std::size_t phase = 0; phase < phase_count; ++phase) {
            const double end = begin + span.phases[phase];
            const Clock::Piece piece = clock.piece(begin, end);
            begin = end;
            if (piece.end - piece.start < nanosecond) continue;
            trace.slices.push_back({span_name(simulation, span, static_cast<Phase>(phase)),
                                    to_string(static_cast<Phase>(phase)), steps, piece.start, piece.end - piece.start});
        }
    }
    for (const Cut& cut : clock.cuts()) {
        trace.slices.push_back({fmt::format("{} more blocks, {}, not shown", cut.blocks, duration({cut.to - cut.from})),
                                "cut", steps, clock.shown(cut.from), cut.width});
    }
}

void add_slices(Trace& trace, const Simulation& simulation, const Clock& clock) {
    const Slice* computed = nullptr;   // the last op of the compute stream
    const Slice* exchanged = nullptr;  // the last collective after it
    const auto arrow = [&](const Slice& from, const Slice& to) {
        const double left = from.start + std::max(0.0, from.duration - nanosecond);
        if (clock.hidden(left) || clock.hidden(to.start) || from.duration < nanosecond) return;
        trace.flows.push_back({track_of(from), clock.shown(left), track_of(to), clock.shown(to.start)});
    };
    for (const Slice& slice : simulation.slices) {
        const Clock::Piece piece = clock.piece(slice.start, slice.start + slice.duration);
        if (piece.end - piece.start < nanosecond) continue;
        trace.slices.push_back(
            {slice.name, to_string(part_of(slice.cost_class)), track_of(slice), piece.start, piece.end - piece.start});
        if (slice.kind != Slice::Kind::op) continue;
        if (slice.stream == Stream::compute) {
            const bool waited =
                exchanged != nullptr && std::abs(exchanged->start + exchanged->duration - slice.start) < nanosecond;
            if (waited) arrow(*exchanged, slice);
            computed = &slice;
            exchanged = nullptr;
        } else if (slice.stream == Stream::ulysses || slice.stream == Stream::ring) {
            if (computed != nullptr && computed->start + computed->duration <= slice.start + nanosecond) {
                arrow(*computed, slice);
            }
            exchanged = &slice;
        }
    }
    std::stable_sort(trace.slices.begin(), trace.slices.end(), [](const TraceSlice& a, const TraceSlice& b) {
        return a.track != b.track ? a.track < b.track : a.start_seconds < b.start_seconds;
    });
}

/// Tensors change hands when the op that was issued after them starts: the allocator itself follows the host, which
/// runs ahead, and a reader wants to see what the running kernel stands on.
class MemoryCounters {
 public:
    MemoryCounters(Trace& trace, const Clock& clock) : trace_(trace), clock_(clock) {
        for (std::size_t i = 0; i < group_count; ++i) {
            add(fmt::format("GPU memory: {}", to_string(static_cast<Group>(i))));
        }
        add("GPU memory, all");
        add("host memory of this rank");
    }

    void change(Group group, Place place, std::int64_t bytes) {
        const bool device = place == Place::device;
        bytes_[device ? group_count : group_count + 1] += bytes;
        if (device) bytes_[static_cast<std::size_t>(group)] += bytes;
    }

    void sample(double seconds) {
        now_ = std::max(now_, seconds);
        if (clock_.hidden(now_)) return;
        const double at = clock_.shown(now_);
        for (std::size_t i = 0; i < count; ++i) {
            std::vector<TraceSample>& samples = trace_.counters[i].samples;
            const double value = in_gib({bytes_[i]});
            if (!samples.empty() && samples.back().value == value) continue;
            if (!samples.empty() && at - samples.back().seconds < nanosecond) {
                samples.back().value = std::max(value, samples.back().value);
            } else {
                samples.push_back({at, value});
            }
        }
    }

    /// Without what this recipe never has.
    void finish() {
        std::erase_if(trace_.counters, [](const TraceCounter& counter) {
            return std::all_of(counter.samples.begin(), counter.samples.end(),
                               [](const TraceSample& sample) { return sample.value == 0; });
        });
    }

 private:
    static constexpr std::size_t count = group_count + 2;
    void add(std::string name) { trace_.counters.push_back({std::move(name), "GiB", {}}); }

    Trace& trace_;
    const Clock& clock_;
    std::array<std::int64_t, count> bytes_{};
    double now_ = 0;
};

void add_memory(Trace& trace, const Simulation& simulation, const Clock& clock) {
    constexpr std::int64_t allocation_unit = 512;
    struct Tensor {
        Group group{};
        Place place{};
        std::int64_t bytes = 0;
    };
    MemoryCounters counters(trace, clock);
    std::vector<std::vector<Tensor>> tensors(simulation.schedule.tensors);  // by id, the youngest last
    auto slice = simulation.slices.begin();
    for (const Segment& segment : simulation.schedule.segments) {
        for (std::uint32_t repetition = 0; repetition < segment.repeat; ++repetition) {
            for_each_event(simulation.schedule, segment, [&](const Event& event) {
                if (event.kind == EventKind::allocate) {
                    const bool device = event.place == Place::device;
                    tensors[event.id].push_back(
                        {event.group, event.place, device ? round_up(event.bytes, allocation_unit) : event.bytes});
                    counters.change(event.group, event.place, tensors[event.id].back().bytes);
                } else if (event.kind == EventKind::release) {
                    const Tensor& tensor = tensors[event.id].back();
                    counters.change(tensor.group, tensor.place, -tensor.bytes);
                    tensors[event.id].pop_back();
                } else if (event.kind >= EventKind::gemm && event.kind != EventKind::record &&
                           event.kind != EventKind::wait && event.kind != EventKind::host_wait) {
                    while (slice->kind == Slice::Kind::held_up) ++slice;
                    counters.sample((slice++)->start);
                }
            });
        }
    }
    counters.sample(simulation.plan.step->time.seconds.value);
    counters.finish();
}

}  // namespace

Trace trace_of(const Simulation& simulation, std::int64_t blocks) {
    const Plan& plan = simulation.plan;
    const Clock clock = make_clock(simulation, std::max<std::int64_t>(1, blocks));
    Trace trace;
    trace.process = fmt::format("rank {} of {}: {}, {} tokens, {} on {}", plan.step->slowest_rank,
                                plan.recipe.context_parallel(), to_string(plan.recipe.method),
                                with_separators(plan.recipe.context.value), plan.model.name, plan.cluster.name);
    trace.tracks.assign(track_names.begin(), track_names.end());
    add_spans(trace, simulation, clock);
    add_slices(trace, simulation, clock);
    add_memory(trace, simulation, clock);
    return trace;
}

}  // namespace headroom
