// SPDX-License-Identifier: Apache-2.0
#include "planner/layer_timeline.hpp"

#include <algorithm>
#include <array>
#include <limits>
#include <string>

#include "models/error.hpp"
#include "models/training_step.hpp"
#include "planner/evaluate.hpp"

namespace headroom {
namespace {

constexpr std::int64_t layers_played = 8;  ///< enough for the middle ones to be in step
constexpr double finest = 1.0 / 1600;      ///< of a pass: a pixel of a wide figure
constexpr std::string_view held_up = "held up by a collective";

bool makes_slice(const Event& event) {
    switch (event.kind) {
        case EventKind::gemm:
        case EventKind::attention:
        case EventKind::memory_bound:
        case EventKind::collective:
        case EventKind::copy:
            return true;
        default:
            return false;
    }
}

/// The slices of one repetition of one segment: [first, last) of all of them, which stand in the order of issue.
struct SliceRange {
    std::size_t first = 0, last = 0;
};

class SliceReader {
 public:
    SliceReader(const Schedule& schedule, const std::vector<Slice>& slices) : schedule_(schedule), slices_(slices) {}

    SliceRange find(std::size_t wanted_segment, std::uint32_t wanted_repetition) {
        SliceRange range;
        std::size_t at = 0;
        for (std::size_t i = 0; i < schedule_.segments.size(); ++i) {
            const Segment& segment = schedule_.segments[i];
            for (std::uint32_t k = 0; k < segment.repeat; ++k) {
                const std::size_t first = at;
                for_each_event(schedule_, segment, [&](const Event& event) {
                    if (makes_slice(event)) at = behind(at, event);
                });
                if (i == wanted_segment && k == wanted_repetition) range = {first, at};
            }
        }
        return range;
    }

 private:
    std::size_t behind(std::size_t at, const Event& event) const {
        while (at < slices_.size() && slices_[at].name == held_up) ++at;
        if (at >= slices_.size() || slices_[at].name != event.name) {
            throw Error(std::string("the timeline lost ") + event.name, "layer timeline", "", ExitCode::failure);
        }
        return at + 1;
    }

    const Schedule& schedule_;
    const std::vector<Slice>& slices_;
};

/// Joins neighbours of one stream and part, and gaps too small to see.
std::vector<LayerTimeline::Span> joined(std::vector<LayerTimeline::Span> spans, double gap) {
    std::array<std::size_t, stream_count> open{};
    open.fill(spans.size());
    std::vector<LayerTimeline::Span> result;
    for (const auto& span : spans) {
        std::size_t& last = open[static_cast<std::size_t>(span.stream)];
        const bool near = last < result.size() && span.start <= result[last].start + result[last].length + gap;
        if (near && result[last].part == span.part) {
            result[last].length = std::max(result[last].length, span.start + span.length - result[last].start);
            continue;
        }
        // Too short to be seen beside its neighbour: leave it to the gap.
        if (near && span.length < gap / 2) continue;
        last = result.size();
        result.push_back(span);
    }
    return result;
}

/// From the first kernel of the block to its last, with all that other streams do meanwhile, be it for other blocks.
LayerTimeline::Pass make_pass(std::string_view name, const std::vector<Slice>& slices, const SliceRange& range) {
    LayerTimeline::Pass pass{name, 0, {}};
    double begin = std::numeric_limits<double>::infinity();
    double end = 0;
    for (std::size_t i = range.first; i < range.last; ++i) {
        if (slices[i].stream != Stream::compute) continue;
        begin = std::min(begin, slices[i].start);
        end = std::max(end, slices[i].start + slices[i].duration);
    }
    pass.seconds = end - begin;
    for (const Slice& slice : slices) {
        const double from = std::max(slice.start, begin);
        const double to = std::min(slice.start + slice.duration, end);
        if (from >= to) continue;
        pass.spans.push_back({slice.stream, part_of(slice.cost_class), from - begin, to - from});
    }
    std::stable_sort(pass.spans.begin(), pass.spans.end(), [](auto& a, auto& b) { return a.start < b.start; });
    pass.spans = joined(std::move(pass.spans), pass.seconds * finest);
    return pass;
}

}  // namespace

LayerTimeline layer_timeline(const Transformer& model, const Cluster& cluster, const Recipe& recipe, RingRole role,
                             const Calibration& calibration, Evaluator& evaluator) {
    LayerTimeline timeline;
    if (model.layers < 3) return timeline;
    Transformer shallow = model;
    shallow.layers = std::min(model.layers, layers_played);
    build_training_step(make_workload(shallow, cluster, recipe, role), evaluator.schedule);
    std::vector<Slice> slices;
    predict_step(evaluator.schedule, calibration, topology(recipe, cluster), recipe.attention_kernel,
                 evaluator.timeline, slices);

    SliceReader reader(evaluator.schedule, slices);
    const std::vector<Segment>& segments = evaluator.schedule.segments;
    for (std::size_t i = 0; i < segments.size(); ++i) {
        if (std::string_view(segments[i].name) != "middle blocks") continue;
        const bool forward = segments[i].phase == Phase::forward;
        const bool recomputes = segments[i].phase == Phase::recompute;
        const SliceRange range = reader.find(i, segments[i].repeat / 2);
        if (range.first == range.last) continue;
        timeline.passes.push_back(
            make_pass(forward ? "forward" : recomputes ? "recompute and backward" : "backward", slices, range));
    }
    return timeline;
}

}  // namespace headroom
