// SPDX-License-Identifier: Apache-2.0
// Host threads that start an action at the same moment, again and again.
#pragma once

#include <barrier>
#include <exception>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace headroom {

class Team {
 public:
    /// `enter` runs once in each thread before anything else (it chooses the GPU).
    Team(int threads, const std::function<void(int)>& enter);
    ~Team();
    Team(const Team&) = delete;
    Team& operator=(const Team&) = delete;

    int size() const { return static_cast<int>(threads_.size()); }
    /// Runs action(thread) in all threads at once; seconds from the common start to the end of the slowest. Rethrows
    /// the first exception, after all have ended.
    double run(const std::function<void(int)>& action);

 private:
    void work(int index, const std::function<void(int)>& enter);

    std::barrier<> start_, end_;
    const std::function<void(int)>* action_ = nullptr;  ///< null: leave
    std::mutex mutex_;
    std::exception_ptr failure_;
    std::vector<std::thread> threads_;
};

}  // namespace headroom
