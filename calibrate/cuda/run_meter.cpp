// SPDX-License-Identifier: Apache-2.0
#include "calibrate/cuda/run_meter.hpp"

#include <cstring>

#include "calibrate/cuda/errors.hpp"

namespace headroom {

std::size_t RunMeter::stamp(cudaStream_t stream) {
    if (used_ == events_.size()) events_.push_back(std::make_unique<EventOwner>());
    check_cuda(cudaEventRecord(events_[used_]->get(), stream), "cudaEventRecord");
    return used_++;
}

std::size_t RunMeter::op_of(const Event& event, Phase phase) {
    for (std::size_t i = 0; i < ops_.size(); ++i) {
        if (ops_[i].event.kind == event.kind && ops_[i].phase == phase &&
            std::strcmp(ops_[i].event.name, event.name) == 0) {
            return i;
        }
    }
    ops_.push_back({event, phase, 0, 0, 0, {}});
    return ops_.size() - 1;
}

void RunMeter::start_segment(std::uint32_t segment, cudaStream_t compute) {
    if (!on) return;
    if (marks_.empty()) last_.fill(none);
    marks_.push_back({segment, stamp(compute)});
}

void RunMeter::begin(const Event& event, Phase phase, cudaStream_t stream) {
    if (!on) return;
    const std::size_t op = op_of(event, phase);
    last_[static_cast<std::size_t>(event.stream)] = op;
    intervals_.push_back({op, stamp(stream), 0, false});
}

void RunMeter::end(cudaStream_t stream) {
    if (!on) return;
    intervals_.back().end = stamp(stream);
}

void RunMeter::recorded(Stream stream, SyncId sync) {
    if (!on) return;
    if (sync >= behind_.size()) behind_.resize(std::size_t{sync} + 1, none);
    behind_[sync] = last_[static_cast<std::size_t>(stream)];
}

void RunMeter::before_wait(SyncId sync, cudaStream_t compute) {
    if (!on) return;
    const std::size_t op = sync < behind_.size() ? behind_[sync] : none;
    intervals_.push_back({op, stamp(compute), 0, true});
}

void RunMeter::after_wait(cudaStream_t compute) { end(compute); }

double RunMeter::between(std::size_t begin, std::size_t end) const {
    float milliseconds = 0;
    check_cuda(cudaEventElapsedTime(&milliseconds, events_[begin]->get(), events_[end]->get()), "cudaEventElapsedTime");
    return milliseconds * 1e-3;
}

void RunMeter::stop(cudaStream_t compute) {
    if (on) stopped_ = stamp(compute);
}

void RunMeter::collect(std::uint32_t segments, std::vector<MeasuredOp>& ops, std::vector<double>& seconds) {
    for (const Interval& interval : intervals_) {
        if (interval.op == none) continue;
        MeasuredOp& op = ops_[interval.op];
        const double taken = between(interval.begin, interval.end);
        if (interval.waits) {
            op.exposed += taken;
        } else {
            op.seconds += taken;
            ++op.launches;
            if (op.event.kind == EventKind::collective) op.each.push_back(taken);
        }
    }
    seconds.assign(segments, 0);
    for (std::size_t i = 0; i < marks_.size(); ++i) {
        const std::size_t end = i + 1 < marks_.size() ? marks_[i + 1].event : stopped_;
        seconds[marks_[i].segment] += between(marks_[i].event, end);
    }
    ops = std::move(ops_);
    ops_.clear();
    intervals_.clear();
    marks_.clear();
    behind_.clear();
    used_ = 0;
}

}  // namespace headroom
