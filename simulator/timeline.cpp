// SPDX-License-Identifier: Apache-2.0
#include "simulator/timeline.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

namespace headroom {

namespace {

constexpr std::size_t index(Stream stream) { return static_cast<std::size_t>(stream); }
constexpr std::size_t index(CostClass cost_class) { return static_cast<std::size_t>(cost_class); }
constexpr std::size_t compute = index(Stream::compute);

bool is_ring(CostClass cost_class) { return cost_class == CostClass::ring || cost_class == CostClass::ring_across; }

}  // namespace

const Playback& Timeline::play_again(const PlayOptions& options) {
    host_ = 0;
    host_released_ = {};
    host_waited_ = false;
    one_back_ = 0;
    ready_.fill({});
    compute_done_ = 0;
    syncs_.assign(recorded_in_.size(), {});
    for (auto& recent : collectives_) recent.written = 0;
    collectives_until_ = 0;
    compute_.written = 0;
    passages_.resize(routines_.size());
    for (Passage& passage : passages_) passage.known = false;
    options_ = options;
    may_skip_ = !options.every_repetition && options.slices == nullptr;
    result_ = {};
    result_.domain = domain_;
    result_.busy = busy_;

    for (segment_ = 0; segment_ < segments_.size(); ++segment_) play_range(segments_[segment_], 0);

    // The step is over when the host is through and every stream is dry.
    const Moment& last =
        *std::max_element(ready_.begin(), ready_.end(), [](const Moment& a, const Moment& b) { return a.end < b.end; });
    result_.seconds = std::max(std::max(host_, last.end), compute_done_);
    explain(compute_done_, result_.seconds, last);
    for (std::size_t c = 0; c < cost_class_count; ++c) result_.exposed[c] += exposed_[c];
    return result_;
}

void Timeline::play_range(const Range& range, std::size_t depth) {
    const std::uint32_t repeat = range.repeat;
    const Step* first = steps_.data() + range.first;
    const Step* last = steps_.data() + range.last;
    const double outer_one_back = one_back_;
    Snapshot& state = state_[depth];
    Snapshot& state_before = state_before_[depth];
    Playback before;
    double done_before = 0;
    state_before.size = 0;
    for (std::uint32_t i = 0; i < repeat; ++i) {
        if (depth == 0) repetition_ = i;
        const double begun = compute_done_;
        if (depth == 0 || i > 0) host_ = std::max(host_, one_back_);
        play_once(first, last);
        one_back_ = begun;
        if (!may_skip_ || repeat < 3) continue;

        snapshot(state);
        add_carried(range, state);
        const bool steady = state.alike(state_before, tolerance());
        if (steady) {
            const std::uint32_t rest = repeat - 1 - i;
            for (std::size_t c = 0; c < cost_class_count; ++c) {
                result_.exposed[c] += rest * (result_.exposed[c] - before.exposed[c]);
            }
            result_.ring_under_attention += rest * (result_.ring_under_attention - before.ring_under_attention);
            skip(range, rest, compute_done_ - done_before);
            break;
        }
        std::swap(state, state_before);
        before = result_;
        done_before = compute_done_;
    }
    if (depth > 0) one_back_ = outer_one_back;
}

void Timeline::play_once(const Step* first, const Step* last) {
    for (const Step* step = first; step != last; ++step) {
        ++result_.events_played;
        Moment& ready = ready_[index(step->stream)];
        switch (step->kind) {
            case Kind::run:
                if (step->chain > 1 && may_skip_ && run_chain(*step)) {
                    step += step->chain - 1;
                } else {
                    run(*step);
                }
                break;
            case Kind::join: {
                const Moment& joined = ready_[index(step->joined)];
                if (keeps_syncs_) syncs_[step->sync] = joined;
                if (joined.end > ready.end) ready = joined;
                break;
            }
            case Kind::call:
                play_call(step->sync);
                break;
            case Kind::record:
                syncs_[step->sync] = ready;
                break;
            case Kind::wait:
                if (syncs_[step->sync].end > ready.end) ready = syncs_[step->sync];
                break;
            case Kind::host_wait:
                if (ready.end > host_) {
                    host_ = ready.end;
                    host_released_ = ready;
                    host_waited_ = true;
                }
                break;
            case Kind::loop: {
                const Range& loop = loops_[step->sync];
                play_range(loop, 1);
                step = steps_.data() + loop.last - 1;
                break;
            }
            case Kind::host_work: {
                const double start = host_;
                host_ += step->seconds;
                note(*step, Slice::Kind::on_host, Stream::compute, step->name, start, step->seconds);
                host_released_ = {host_, start, step->cost_class, host_released_.cost_class};
                break;
            }
        }
    }
}

void Timeline::run(const Step& step) {
    // After a wait the host has lost its lead: the first kernel costs the whole way from waking up to its start. The
    // launch of a collective is always the whole way, hidden with the host ahead; the kernel behind it comes on top.
    double launch = step.launch;
    if (host_waited_ && !step.collective) {
        launch = std::max(after_wait_, step.launch);
        host_waited_ = false;
    }
    const double issue = host_ + launch;
    host_ = issue + step.later_launches;

    const std::size_t stream = index(step.stream);
    if (stream == compute) {
        run_on_compute(step, issue, step.later_launches > 0 ? host_ : 0);
    } else {
        Moment& ready = ready_[stream];
        const CostClass before = issue > ready.end ? CostClass::host_gap : ready.cost_class;
        const double start = std::max(ready.end, issue);
        ready = {run_elsewhere(step, start), start, step.cost_class, before};
        note(step, Slice::Kind::op, step.stream, step.name, start, ready.end - start);
    }
    if (step.blocks_host && ready_[stream].end > host_) {
        host_ = ready_[stream].end;
        host_released_ = ready_[stream];
        host_waited_ = true;
    }
}

/// Kernels that all start the moment the one before ends: the last is issued before the first can start, and no
/// collective runs beside them.
bool Timeline::run_chain(const Step& step) {
    Moment& ready = ready_[compute];
    const double start = ready.end;
    if (host_waited_ || host_ + step.chain_launches > start || start < collectives_until_) return false;
    host_ += step.chain_launches;
    if (start > compute_done_) explain(compute_done_, start, ready);
    const double end = start + step.chain_seconds;
    extend_compute(step, start, end);
    const Step& last = (&step)[step.chain - 1];
    ready = {end, end - last.seconds, last.cost_class, (&last)[-1].cost_class};
    return true;
}

void Timeline::extend_compute(const Step& step, double start, double end) {
    if (compute_.written > 0 && compute_.newest(0).beside == step.beside && compute_.newest(0).end == start) {
        compute_.newest(0).end = end;
    } else {
        compute_.push({start, end, start, step.cost_class, Link::none, step.beside});
    }
    compute_done_ = end;
}

void Timeline::run_on_compute(const Step& step, double issue, double least_end) {
    Moment& ready = ready_[compute];
    const CostClass before = issue > ready.end ? CostClass::host_gap : ready.cost_class;
    const double start = std::max(ready.end, issue);
    if (start > compute_done_) explain(compute_done_, start, ready);
    double end = start + step.seconds;
    if (start < collectives_until_ && step.beside != Beside::nothing) end = stretched(step, start);
    if (end < least_end) {  // many small kernels, and the host is still launching them
        result_.exposed[index(CostClass::host_gap)] += least_end - end;
        end = least_end;
    }
    note(step, Slice::Kind::op, step.stream, step.name, start, end - start);
    extend_compute(step, start, end);
    ready = {end, start, step.cost_class, before};
}

double Timeline::run_elsewhere(const Step& step, double start) {
    double end = start + step.seconds;
    if (step.link == Link::none) return end;
    if (start < collectives_until_) {
        for (std::size_t other = 0; other < stream_count; ++other) {
            if (other == index(step.stream)) continue;
            auto& recent = collectives_[other];
            std::size_t count = 0;
            while (count < recent.size() && recent.newest(count).end > start) ++count;
            while (count > 0) {
                const Interval& busy = recent.newest(--count);
                if (busy.link == step.link)
                    end += std::max(0.0, std::min(end, busy.end) - std::max(start, busy.carries_from));
            }
        }
    }
    collectives_[index(step.stream)].push(
        {start, end, end - step.seconds, step.cost_class, step.link, Beside::nothing});
    collectives_until_ = std::max(collectives_until_, end);
    if (start < compute_done_) take_from_compute(step, start, end);
    return end;
}

double Timeline::share_taken(Beside beside, CostClass collective) const {
    if (beside == Beside::nothing) return 0;
    if (beside == Beside::attention && is_ring(collective)) {
        return options_.ring_overlap == Overlap::serialised ? 1.0 : 0.0;
    }
    return collective_share_;
}

/// End of a kernel that starts while collectives issued before it are running.
double Timeline::stretched(const Step& step, double start) {
    double now = start;
    double left = step.seconds;
    while (left > 0) {
        double taken = 0;
        double largest = 0;
        double boundary = std::numeric_limits<double>::infinity();  // the next collective that starts or ends
        CostClass by = CostClass::host_gap;
        bool ring = false;
        for (auto& recent : collectives_) {
            for (std::size_t back = 0; back < recent.size(); ++back) {
                const Interval& busy = recent.newest(back);
                if (busy.end <= now) break;
                boundary = std::min(boundary, busy.start > now ? busy.start : busy.end);
                if (busy.start > now) continue;
                ring = ring || is_ring(busy.cost_class);
                const double share = share_taken(step.beside, busy.cost_class);
                taken += share;
                if (share > largest) {
                    largest = share;
                    by = busy.cost_class;
                }
            }
        }
        const double rate = std::max(0.0, 1.0 - taken);
        const double until = rate > 0 ? std::min(boundary, now + left / rate) : boundary;
        if (ring && step.beside == Beside::attention) result_.ring_under_attention += until - now;
        result_.exposed[index(by)] += (1.0 - rate) * (until - now);
        left = rate > 0 && until >= now + left / rate ? 0 : left - rate * (until - now);
        now = until;
    }
    return now;
}

/// A collective that starts under kernels already placed: the compute stream ends later by what it takes from them.
void Timeline::take_from_compute(const Step& step, double start, double end) {
    double taken = 0;
    for (std::size_t back = 0; back < compute_.size(); ++back) {
        const Interval& busy = compute_.newest(back);
        if (busy.end <= start) break;
        const double both = std::min(end, busy.end) - std::max(start, busy.start);
        if (both <= 0) continue;
        taken += both * share_taken(busy.beside, step.cost_class);
        if (busy.beside == Beside::attention && is_ring(step.cost_class)) result_.ring_under_attention += both;
    }
    if (taken <= 0) return;
    note(step, Slice::Kind::held_up, Stream::compute, "held up by a collective", compute_done_, taken);
    result_.exposed[index(step.cost_class)] += taken;
    compute_done_ += taken;
    if (compute_done_ > ready_[compute].end) {
        ready_[compute] = {compute_done_, compute_done_ - taken, step.cost_class, ready_[compute].cost_class};
    }
}

/// The compute stream was idle in [from, to): first it waited for `ready`, then for the host.
void Timeline::explain(double from, double to, const Moment& ready) {
    const double waited = std::clamp(ready.end, from, to);
    credit(from, waited, ready);
    if (waited >= to) return;
    const double held = std::clamp(host_released_.end, waited, to);
    credit(waited, held, host_released_);
    result_.exposed[index(CostClass::host_gap)] += to - held;
}

void Timeline::credit(double from, double to, const Moment& moment) {
    if (to <= from) return;
    const double begun = std::clamp(moment.start, from, to);
    result_.exposed[index(moment.before)] += begun - from;
    result_.exposed[index(moment.cost_class)] += to - begun;
}

}  // namespace headroom
