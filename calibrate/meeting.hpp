// SPDX-License-Identifier: Apache-2.0
// Threads of one group that wait for each other, and hear it when one of them gives up.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <mutex>

namespace headroom {

class Meeting {
 public:
    explicit Meeting(int members) : members_(members) {}
    /// Returns when all members are here. Throws Error when one has given up.
    void wait();
    /// Everyone who waits, now or later, throws.
    void give_up();

 private:
    std::mutex mutex_;
    std::condition_variable changed_;
    int members_;
    int here_ = 0;
    std::uint64_t turn_ = 0;
    bool given_up_ = false;
};

}  // namespace headroom
