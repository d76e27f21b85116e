// SPDX-License-Identifier: Apache-2.0
#include "calibrate/meeting.hpp"

#include "models/error.hpp"

namespace headroom {

void Meeting::wait() {
    std::unique_lock lock(mutex_);
    const std::uint64_t turn = turn_;
    if (++here_ == members_) {
        here_ = 0;
        ++turn_;
        changed_.notify_all();
    }
    changed_.wait(lock, [&] { return turn_ != turn || given_up_; });
    if (given_up_) throw Error("another rank gave up", "a collective");
}

void Meeting::give_up() {
    const std::lock_guard lock(mutex_);
    given_up_ = true;
    changed_.notify_all();
}

}  // namespace headroom
