// SPDX-License-Identifier: Apache-2.0
// The part of Timeline that runs once per repetition: the skip over repetitions that can only repeat the last one.
#include <algorithm>

#include "simulator/timeline.hpp"

namespace headroom {

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
    for (std::uint32_t i = range.carried; i < range.recorded; ++i) add_moment(syncs_[syncs_of_[i]]);
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
    for (std::uint32_t i = range.recorded; i < range.end; ++i) move(syncs_[syncs_of_[i]]);
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
