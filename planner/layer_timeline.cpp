// SPDX-License-Identifier: Apache-2.0
#include "planner/layer_timeline.hpp"

#include <algorithm>
#include <array>
#include <limits>

#include "models/training_step.hpp"
#include "planner/evaluate.hpp"

namespace headroom {
namespace {

constexpr std::int64_t layers_played = 8;  ///< enough for the middle ones to be in step
constexpr double finest = 1.0 / 1600;      ///< of a pass: a pixel of a wide figure

/// Joins neighbours of one stream and part, and gaps too small to see.
std::vector<LayerTimeline::Span> joined(const std::vector<LayerTimeline::Span>& spans, double gap) {
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
LayerTimeline::Pass make_pass(std::string_view name, const std::vector<Slice>& slices, std::uint32_t segment,
                              std::uint32_t repetition) {
    LayerTimeline::Pass pass{name, 0, {}};
    double begin = std::numeric_limits<double>::infinity();
    double end = 0;
    for (const Slice& slice : slices) {
        const bool inside = slice.segment == segment && slice.repetition == repetition;
        if (!inside || slice.stream != Stream::compute || slice.kind == Slice::Kind::on_host) continue;
        begin = std::min(begin, slice.start);
        end = std::max(end, slice.start + slice.duration);
    }
    if (end <= begin) return pass;
    pass.seconds = end - begin;
    for (const Slice& slice : slices) {
        const double from = std::max(slice.start, begin);
        const double to = std::min(slice.start + slice.duration, end);
        if (from >= to || slice.kind == Slice::Kind::on_host) continue;
        pass.spans.push_back({slice.stream, part_of(slice.cost_class), from - begin, to - from});
    }
    std::stable_sort(pass.spans.begin(), pass.spans.end(), [](auto& a, auto& b) { return a.start < b.start; });
    pass.spans = joined(pass.spans, pass.seconds * finest);
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

    const std::vector<Segment>& segments = evaluator.schedule.segments;
    for (std::uint32_t i = 0; i < segments.size(); ++i) {
        if (std::string_view(segments[i].name) != "middle blocks") continue;
        const bool forward = segments[i].phase == Phase::forward;
        const bool recomputes = segments[i].phase == Phase::recompute;
        const char* name = forward ? "forward" : recomputes ? "recompute and backward" : "backward";
        LayerTimeline::Pass pass = make_pass(name, slices, i, segments[i].repeat / 2);
        if (!pass.spans.empty()) timeline.passes.push_back(std::move(pass));
    }
    return timeline;
}

}  // namespace headroom
