// SPDX-License-Identifier: Apache-2.0
// The part of Timeline that runs once per schedule or once per repetition: costs worked out ahead, and the skip over
// repetitions that can only repeat the last one.
#include <algorithm>

#include "simulator/timeline.hpp"

namespace headroom {

void Timeline::compile(const Schedule& schedule, const Calibration& calibration, const Topology& topology,
                       AttentionKernel kernel) {
    memo_.clear();
    steps_.clear();
    segments_.clear();
    loops_.clear();
    carried_.clear();
    domain_ = 0;
    after_wait_ = calibration.host.after_wait.value;
    collective_share_ = calibration.collective_share.value;
    recorded_in_.assign(schedule.syncs, 0);
    marks_ = 0;
    for (const Segment& segment : schedule.segments) {
        Range range{};
        range.first = static_cast<std::uint32_t>(steps_.size());
        range.repeat = segment.repeat;
        Phase phase = segment.phase;
        std::uint32_t loop_end = 0;  // index of the event behind the open loop, 0 = none
        std::uint32_t loop_begin = 0;
        const auto close_loop = [&] {
            Range& loop = loops_.back();
            loop.first = loop_begin;
            loop.last = static_cast<std::uint32_t>(steps_.size());
            loop.carried_first = static_cast<std::uint32_t>(carried_.size());
            find_carried(loop);
            loop.carried_last = static_cast<std::uint32_t>(carried_.size());
            loop_end = 0;
        };
        for (std::uint32_t i = segment.first; i < segment.last; ++i) {
            const Event& event = schedule.events[i];
            if (loop_end == i && loop_end != 0) close_loop();
            if (event.kind == EventKind::allocate || event.kind == EventKind::release) continue;
            if (event.kind == EventKind::loop) {
                Step& step = steps_.emplace_back();
                step.kind = Kind::loop;
                step.sync = static_cast<std::uint32_t>(loops_.size());
                loops_.push_back({0, 0, static_cast<std::uint32_t>(event.bytes), 0, 0});
                loop_begin = static_cast<std::uint32_t>(steps_.size());
                loop_end = i + 1 + event.id;
                continue;
            }
            if (event.kind == EventKind::phase) {
                phase = static_cast<Phase>(event.id);
                continue;
            }
            Step& step = steps_.emplace_back();
            step.name = event.name;
            step.sync = event.id;
            step.stream = event.stream;
            step.phase = phase;
            switch (event.kind) {
                case EventKind::record:
                    step.kind = Kind::record;
                    continue;
                case EventKind::wait:
                    step.kind = Kind::wait;
                    continue;
                case EventKind::host_wait:
                    step.kind = Kind::host_wait;
                    continue;
                case EventKind::host_work:
                    step.kind = Kind::host_work;
                    break;
                default:
                    break;
            }
            const OpCost cost = memo_.lookup(event, phase, calibration, topology, kernel);
            step.seconds = cost.seconds;
            step.launch = cost.launch;
            step.later_launches = cost.later_launches;
            step.cost_class = cost.cost_class;
            domain_ |= cost.domain;
            if (event.kind == EventKind::collective) {
                step.collective = true;
                if (event.collective.kind != CollectiveKind::barrier) {
                    const auto& group = topology.groups[static_cast<std::size_t>(event.collective.group)];
                    step.link = group.crosses() ? Link::across : Link::inside;
                }
            } else if (event.kind == EventKind::copy) {
                // A copy of pageable memory goes through the driver's own buffers, with the caller waiting.
                step.blocks_host = !event.copy.pinned;
            } else {
                step.beside = event.kind == EventKind::attention ? Beside::attention : Beside::kernels;
            }
        }
        if (loop_end != 0) close_loop();
        range.last = static_cast<std::uint32_t>(steps_.size());
        range.carried_first = static_cast<std::uint32_t>(carried_.size());
        if (range.repeat > 1) find_carried(range);
        range.carried_last = static_cast<std::uint32_t>(carried_.size());
        segments_.push_back(range);
    }
}

/// Syncs that a run of the range waits for before it records them: what one run hands to the next.
void Timeline::find_carried(const Range& range) {
    ++marks_;
    for (std::uint32_t i = range.first; i < range.last; ++i) {
        const Step& step = steps_[i];
        if (step.kind == Kind::record) recorded_in_[step.sync] = marks_;
        if (step.kind == Kind::wait && recorded_in_[step.sync] != marks_) carried_.push_back(step.sync);
    }
}

/// Everything the next repetition can see, relative to the end of the compute stream. Moments that have passed when
/// the host issues its next event cannot matter any more and count as that moment.
void Timeline::snapshot(const Range& range, std::vector<double>& state) const {
    state.clear();
    const double zero = compute_done_;
    const auto add = [&](double time) { state.push_back(std::max(time, host_) - zero); };
    const auto add_moment = [&](const Moment& moment) {
        add(moment.end);
        state.push_back(std::max(moment.start, zero) - zero);
        const bool matters = moment.end > zero;
        state.push_back(matters ? static_cast<double>(moment.cost_class) : -1);
        state.push_back(matters ? static_cast<double>(moment.before) : -1);
    };
    state.push_back(host_ - zero);
    state.push_back(host_waited_ ? 1 : 0);
    state.push_back(one_back_ - zero);
    add_moment(host_released_);
    for (const Moment& moment : ready_) add_moment(moment);
    for (std::uint32_t i = range.carried_first; i < range.carried_last; ++i) {
        add_moment(syncs_[carried_[i]]);
    }
    const auto add_recent = [&](auto& recent) {
        for (std::size_t back = 0; back < recent.size(); ++back) {
            const Interval& interval = recent.ring[(recent.written - 1 - back) % recent.ring.size()];
            if (interval.end <= host_) break;
            add(interval.start);
            add(interval.end);
            add(interval.carries_from);
            state.push_back(static_cast<double>(interval.cost_class));
        }
    };
    for (const auto& recent : collectives_) add_recent(recent);
    add_recent(compute_);
}

void Timeline::skip(const Range& range, std::uint32_t repetitions, double period) {
    const double shift = repetitions * period;
    const auto move = [=](Moment& moment) {
        moment.end += shift;
        moment.start += shift;
    };
    host_ += shift;
    one_back_ += shift;
    compute_done_ += shift;
    collectives_until_ += shift;
    move(host_released_);
    for (Moment& moment : ready_) move(moment);
    ++skips_;
    for (std::uint32_t i = range.first; i < range.last; ++i) {
        const Step& step = steps_[i];
        if (step.kind != Kind::record || moved_[step.sync] == skips_) continue;
        move(syncs_[step.sync]);
        moved_[step.sync] = skips_;  // once, though it may be recorded twice
    }
    for (auto& recent : collectives_) {
        for (Interval& interval : recent.ring) {
            interval.start += shift;
            interval.end += shift;
            interval.carries_from += shift;
        }
    }
    for (Interval& interval : compute_.ring) {
        interval.start += shift;
        interval.end += shift;
        interval.carries_from += shift;
    }
}

}  // namespace headroom
