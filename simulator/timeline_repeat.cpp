// SPDX-License-Identifier: Apache-2.0
// The part of Timeline that runs once per repetition: the skip over repetitions that can only repeat the last one.
#include <algorithm>
#include <cmath>

#include "simulator/timeline.hpp"

namespace headroom {

bool Timeline::Snapshot::alike(const Snapshot& other, double tolerance) const {
    return size == other.size && std::equal(values.data(), values.data() + size, other.values.data(),
                                            [=](double a, double b) { return std::abs(a - b) <= tolerance; });
}

double Timeline::tolerance() const { return 1e-12 * std::max(1.0, compute_done_); }

/// Everything that what is played next can see, relative to the end of the compute stream. Moments that have passed
/// when the host issues its next event cannot matter any more and count as that moment.
void Timeline::snapshot(Snapshot& state) const {
    constexpr std::size_t most = 2 + 4 * (1 + stream_count) + 4 * (16 * stream_count + 32);
    if (state.values.size() < most) state.values.resize(most);
    double* to = state.values.data();
    const double zero = compute_done_;
    const double host = host_;
    const auto add_moment = [&](const Moment& moment) {
        const bool matters = moment.end > zero;
        *to++ = std::max(moment.end, host) - zero;
        *to++ = std::max(moment.start, zero) - zero;
        *to++ = matters ? static_cast<double>(moment.cost_class) : -1;
        *to++ = matters ? static_cast<double>(moment.before) : -1;
    };
    *to++ = host - zero;
    *to++ = host_waited_ ? 1 : 0;
    add_moment(host_released_);
    for (const Moment& moment : ready_) add_moment(moment);
    const auto add_recent = [&](auto& recent) {
        for (std::size_t back = 0; back < recent.size(); ++back) {
            const Interval& interval = recent.newest(back);
            if (interval.end <= host) break;
            *to++ = std::max(interval.start, host) - zero;
            *to++ = interval.end - zero;
            *to++ = std::max(interval.carries_from, host) - zero;
            *to++ = static_cast<double>(interval.cost_class);
        }
    };
    for (const auto& recent : collectives_) add_recent(recent);
    add_recent(compute_);
    state.size = static_cast<std::size_t>(to - state.values.data());
}

/// What one repetition of the range hands to the next beside that.
void Timeline::add_carried(const Range& range, Snapshot& state) const {
    const std::size_t need = state.size + 1 + 2 * std::size_t{range.recorded - range.carried};
    if (state.values.size() < need) state.values.resize(need);
    state.values[state.size++] = one_back_ - compute_done_;
    for (std::uint32_t i = range.carried; i < range.recorded; ++i) {
        const Moment& moment = syncs_[syncs_of_[i]];
        state.values[state.size++] = std::max(moment.end, host_) - compute_done_;
        state.values[state.size++] = std::max(moment.start, compute_done_) - compute_done_;
    }
}

void Timeline::play_call(std::uint32_t number) {
    const Range& routine = routines_[number];
    const Step* first = steps_.data() + routine.first;
    const Step* last = steps_.data() + routine.last;
    if (!may_skip_ || keeps_syncs_ || routine.last - routine.first < shortest_passage) return play_once(first, last);
    snapshot(start_);
    Passage& passage = passages_[number];
    if (passage.known && start_.alike(passage.start, tolerance())) return pass_again(passage);
    std::swap(start_, passage.start);
    passage.begun = compute_done_;
    const Playback before = result_;
    play_once(first, last);
    remember(passage, before);
}

void Timeline::remember(Passage& passage, const Playback& before) const {
    passage.known = true;
    passage.host = host_;
    passage.compute_done = compute_done_;
    passage.collectives_until = collectives_until_;
    passage.host_released = host_released_;
    passage.host_waited = host_waited_;
    passage.ready = ready_;
    const auto keep = [&](const auto& recent, std::vector<Interval>& running) {
        running.clear();
        std::size_t count = 0;
        while (count < recent.size() && recent.newest(count).end > host_) ++count;
        while (count > 0) running.push_back(recent.newest(--count));
    };
    for (std::size_t i = 0; i < stream_count; ++i) keep(collectives_[i], passage.collectives[i]);
    keep(compute_, passage.compute);
    for (std::size_t c = 0; c < cost_class_count; ++c) passage.exposed[c] = result_.exposed[c] - before.exposed[c];
    passage.ring_under_attention = result_.ring_under_attention - before.ring_under_attention;
}

void Timeline::pass_again(const Passage& passage) {
    const double shift = compute_done_ - passage.begun;
    const auto moved = [=](Moment moment) {
        moment.end += shift;
        moment.start += shift;
        return moment;
    };
    host_ = passage.host + shift;
    compute_done_ = passage.compute_done + shift;
    collectives_until_ = passage.collectives_until + shift;
    host_released_ = moved(passage.host_released);
    host_waited_ = passage.host_waited;
    for (std::size_t i = 0; i < stream_count; ++i) ready_[i] = moved(passage.ready[i]);
    const auto restore = [=](auto& recent, const std::vector<Interval>& running) {
        recent.written = 0;
        for (const Interval& interval : running) recent.push(interval.moved(shift));
    };
    for (std::size_t i = 0; i < stream_count; ++i) restore(collectives_[i], passage.collectives[i]);
    restore(compute_, passage.compute);
    for (std::size_t c = 0; c < cost_class_count; ++c) result_.exposed[c] += passage.exposed[c];
    result_.ring_under_attention += passage.ring_under_attention;
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
    const auto move_recent = [=](auto& recent) {
        for (std::size_t i = 0; i < recent.size(); ++i) recent.ring[i] = recent.ring[i].moved(shift);
    };
    for (auto& recent : collectives_) move_recent(recent);
    move_recent(compute_);
}

}  // namespace headroom
