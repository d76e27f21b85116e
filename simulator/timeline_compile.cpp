// SPDX-License-Identifier: Apache-2.0
// The part of Timeline that runs once per schedule: events become steps with their costs worked out.
#include "simulator/timeline.hpp"

namespace headroom {

struct Timeline::Compiler {
    Timeline& to;
    const Schedule& schedule;
    const Calibration& calibration;
    const Topology& topology;
    AttentionKernel kernel;

    Range range(std::uint32_t first, std::uint32_t last, std::uint32_t repeat, Phase phase) const {
        Range range{};
        range.first = static_cast<std::uint32_t>(to.steps_.size());
        range.repeat = repeat;
        steps(first, last, phase);
        range.ends_in = phase;
        range.last = static_cast<std::uint32_t>(to.steps_.size());
        if (range.last > range.first) to.steps_.back().ends_range = true;
        return range;
    }

    void steps(std::uint32_t first, std::uint32_t last, Phase& phase) const {
        for (std::uint32_t i = first; i < last; ++i) {
            const Event& event = schedule.events[i];
            switch (event.kind) {
                case EventKind::allocate:
                case EventKind::release:
                    break;
                case EventKind::phase:
                    phase = static_cast<Phase>(event.id);
                    break;
                case EventKind::loop:
                    loop(event, i + 1, phase);
                    i += event.id;
                    break;
                case EventKind::call:
                    step(Kind::call, event, phase);
                    phase = to.routines_[event.id].ends_in;
                    break;
                case EventKind::record: {
                    const bool joins = i + 1 < last && schedule.events[i + 1].kind == EventKind::wait &&
                                       schedule.events[i + 1].id == event.id;
                    Step& made = step(joins ? Kind::join : Kind::record, event, phase);
                    if (!joins) break;
                    made.joined = event.stream;
                    made.stream = schedule.events[++i].stream;
                    break;
                }
                case EventKind::wait:
                    step(Kind::wait, event, phase);
                    to.keeps_syncs_ = true;
                    break;
                case EventKind::host_wait:
                    step(Kind::host_wait, event, phase);
                    break;
                case EventKind::host_work:
                    cost(step(Kind::host_work, event, phase), event, phase);
                    break;
                case EventKind::gemm:
                case EventKind::attention:
                case EventKind::memory_bound:
                case EventKind::collective:
                case EventKind::copy:
                    run(event, phase);
                    break;
            }
        }
    }

    Step& step(Kind kind, const Event& event, Phase phase) const {
        Step& made = to.steps_.emplace_back();
        made.kind = kind;
        made.name = event.name;
        made.sync = event.id;
        made.stream = event.stream;
        made.phase = phase;
        return made;
    }

    void loop(const Event& event, std::uint32_t body, Phase& phase) const {
        const auto number = static_cast<std::uint32_t>(to.loops_.size());
        step(Kind::loop, event, phase).sync = number;
        to.loops_.emplace_back();
        to.loops_[number] = range(body, body + event.id, static_cast<std::uint32_t>(event.bytes), phase);
    }

    void cost(Step& made, const Event& event, Phase phase) const {
        const OpCost& cost = to.memo_.lookup(event, phase, calibration, topology, kernel);
        made.seconds = cost.seconds;
        made.launch = cost.launch;
        made.later_launches = cost.later_launches;
        made.cost_class = cost.cost_class;
        to.domain_ |= cost.domain;
    }

    void run(const Event& event, Phase phase) const {
        Step& made = step(Kind::run, event, phase);
        cost(made, event, phase);
        if (event.kind == EventKind::collective) {
            made.collective = true;
            if (event.collective.kind == CollectiveKind::barrier) return;
            const GroupShape& group = topology.groups[static_cast<std::size_t>(event.collective.group)];
            made.link = group.crosses() ? Link::across : Link::inside;
        } else if (event.kind == EventKind::copy) {
            // A copy of pageable memory goes through the driver's own buffers, with the caller waiting.
            made.blocks_host = !event.copy.pinned;
        } else {
            made.beside = event.kind == EventKind::attention ? Beside::attention : Beside::kernels;
        }
    }
};

const Playback& Timeline::play(const Schedule& schedule, const Calibration& calibration, const Topology& topology,
                               AttentionKernel kernel, const PlayOptions& options) {
    memo_.clear();
    steps_.clear();
    segments_.clear();
    loops_.clear();
    routines_.clear();
    syncs_of_.clear();
    keeps_syncs_ = false;
    domain_ = 0;
    after_wait_ = calibration.host.after_wait.value;
    collective_share_ = calibration.collective_share.value;

    const Compiler compiler{*this, schedule, calibration, topology, kernel};
    for (const Routine& routine : schedule.routines) {
        routines_.push_back(compiler.range(routine.first, routine.last, 1, routine.phase));
    }
    for (const Segment& segment : schedule.segments) {
        segments_.push_back(compiler.range(segment.first, segment.last, segment.repeat, segment.phase));
    }
    find_chains();
    total_work();
    recorded_in_.assign(keeps_syncs_ ? schedule.syncs : 0, 0);
    marks_ = 0;
    if (keeps_syncs_) {
        for (Range& loop : loops_) find_syncs(loop);
        for (Range& segment : segments_) find_syncs(segment);
    }
    return play_again(options);
}

void Timeline::find_chains() {
    for (std::size_t i = steps_.size(); i-- > 0;) {
        Step& step = steps_[i];
        if (step.kind != Kind::run || step.stream != Stream::compute || step.beside != Beside::kernels) continue;
        step.chain = 1;
        step.chain_seconds = step.seconds;
        step.chain_launches = step.launch + step.later_launches;
        if (step.ends_range || steps_[i + 1].chain == 0) continue;
        step.chain += steps_[i + 1].chain;
        step.chain_seconds += steps_[i + 1].chain_seconds;
        step.chain_launches += steps_[i + 1].chain_launches;
    }
}

void Timeline::total_work() {
    busy_ = exposed_ = {};
    calls_.assign(routines_.size(), 0);
    for (const Range& segment : segments_) add_work(segment, segment.repeat);
    for (std::size_t i = 0; i < routines_.size(); ++i) add_work(routines_[i], calls_[i]);
}

void Timeline::add_work(const Range& range, double times) {
    for (std::uint32_t i = range.first; i < range.last; ++i) {
        const Step& step = steps_[i];
        if (step.kind == Kind::loop) {
            const Range& loop = loops_[step.sync];
            add_work(loop, times * loop.repeat);
            i = loop.last - 1;
        } else if (step.kind == Kind::call) {
            calls_[step.sync] += times;
        } else {
            const auto cost_class = static_cast<std::size_t>(step.cost_class);
            busy_[cost_class] += times * step.seconds;
            if (step.kind == Kind::run && step.stream == Stream::compute) exposed_[cost_class] += times * step.seconds;
        }
    }
}

/// Syncs that a run of the range waits for before it records them: what one run hands to the next.
void Timeline::find_syncs(Range& range) {
    ++marks_;
    recorded_.clear();
    range.carried = static_cast<std::uint32_t>(syncs_of_.size());
    list_syncs(range.first, range.last);
    range.recorded = static_cast<std::uint32_t>(syncs_of_.size());
    syncs_of_.insert(syncs_of_.end(), recorded_.begin(), recorded_.end());
    range.end = static_cast<std::uint32_t>(syncs_of_.size());
}

void Timeline::list_syncs(std::uint32_t first, std::uint32_t last) {
    for (std::uint32_t i = first; i < last; ++i) {
        const Step& step = steps_[i];
        if (step.kind == Kind::call) {
            list_syncs(routines_[step.sync].first, routines_[step.sync].last);
        } else if (step.kind == Kind::record || step.kind == Kind::join) {
            if (recorded_in_[step.sync] != marks_) recorded_.push_back(step.sync);
            recorded_in_[step.sync] = marks_;
        } else if (step.kind == Kind::wait && recorded_in_[step.sync] != marks_) {
            syncs_of_.push_back(step.sync);
        }
    }
}

}  // namespace headroom
