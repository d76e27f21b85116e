// SPDX-License-Identifier: Apache-2.0
// Ranks that are threads: each says where its data lies, and all read it between two meetings.
#include <algorithm>
#include <cstring>

#include "calibrate/host_device.hpp"
#include "calibrate/host_values.hpp"

namespace headroom {

HostRanks::HostRanks(int ulysses, int ring)
    : ulysses_(ulysses), ring_(ring), all_(ulysses * ring), offered_(static_cast<std::size_t>(ulysses * ring)) {
    for (int i = 0; i < ring; ++i) ulysses_meetings_.push_back(std::make_unique<Meeting>(ulysses));
    for (int i = 0; i < ulysses; ++i) ring_meetings_.push_back(std::make_unique<Meeting>(ring));
}

void HostRanks::give_up() {
    for (const auto& meeting : ulysses_meetings_) meeting->give_up();
    for (const auto& meeting : ring_meetings_) meeting->give_up();
    all_.give_up();
}

void HostDevice::compute(Stream, const Exchange& what, const Addresses& at) {
    const int ulysses = ranks_.ulysses_;
    const int first = rank_ / ulysses * ulysses;
    Meeting& meeting = *ranks_.ulysses_meetings_[static_cast<std::size_t>(rank_ / ulysses)];
    ranks_.offered_[static_cast<std::size_t>(rank_)] = at;
    meeting.wait();
    const std::int64_t block = what.move.bytes / ulysses;
    const Addresses* group = ranks_.offered_.data() + first;
    for (int peer = 0; peer < ulysses; ++peer) {
        std::memcpy(at[1] + peer * block, group[peer][0] + (rank_ - first) * block, static_cast<std::size_t>(block));
    }
    meeting.wait();
}

void HostDevice::compute(Stream, const PassOn& what, const Addresses& at) {
    const int ulysses = ranks_.ulysses_;
    const int before = (rank_ + (ranks_.ring_ - 1) * ulysses) % ranks_.size();
    Meeting& meeting = *ranks_.ring_meetings_[static_cast<std::size_t>(rank_ % ulysses)];
    ranks_.offered_[static_cast<std::size_t>(rank_)] = at;
    meeting.wait();
    const Addresses& sent = ranks_.offered_[static_cast<std::size_t>(before)];
    for (std::size_t i = 0; i < what.moves.size(); ++i) {
        if (what.moves[i].bytes == 0) continue;
        std::memcpy(at[2 * i + 1], sent[2 * i], static_cast<std::size_t>(what.moves[i].bytes));
    }
    meeting.wait();
}

void HostDevice::compute(Stream, const GatherShards& what, const Addresses& at) {
    ranks_.offered_[static_cast<std::size_t>(rank_)] = at;
    ranks_.all_.wait();
    float* to = floats(at[1]);
    for (const Addresses& sent : ranks_.offered_) to = std::copy_n(floats(sent[0]), what.elements, to);
    ranks_.all_.wait();
}

void HostDevice::compute(Stream, const ReduceScatter& what, const Addresses& at) {
    ranks_.offered_[static_cast<std::size_t>(rank_)] = at;
    ranks_.all_.wait();
    for (std::int64_t i = 0; i < what.elements; ++i) {
        double sum = 0;
        for (const Addresses& sent : ranks_.offered_) {
            sum += static_cast<double>(floats(sent[0])[rank_ * what.elements + i]);
        }
        floats(at[1])[i] = static_cast<float>(sum);
    }
    ranks_.all_.wait();
}

}  // namespace headroom
