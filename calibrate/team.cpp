// SPDX-License-Identifier: Apache-2.0
#include "calibrate/team.hpp"

#include <chrono>
#include <utility>

namespace headroom {

Team::Team(int threads, const std::function<void(int)>& enter) : start_(threads + 1), end_(threads + 1) {
    threads_.reserve(static_cast<std::size_t>(threads));
    for (int i = 0; i < threads; ++i) threads_.emplace_back([this, i, enter] { work(i, enter); });
}

Team::~Team() {
    action_ = nullptr;
    start_.arrive_and_wait();
    for (std::thread& thread : threads_) thread.join();
}

double Team::run(const std::function<void(int)>& action) {
    action_ = &action;
    start_.arrive_and_wait();
    const auto begin = std::chrono::steady_clock::now();
    end_.arrive_and_wait();
    const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - begin;
    if (failure_) std::rethrow_exception(std::exchange(failure_, nullptr));
    return elapsed.count();
}

void Team::work(int index, const std::function<void(int)>& enter) {
    const auto guarded = [&](const std::function<void(int)>& action) {
        try {
            action(index);
        } catch (...) {
            const std::lock_guard lock(mutex_);
            if (!failure_) failure_ = std::current_exception();
        }
    };
    guarded(enter);
    while (true) {
        start_.arrive_and_wait();
        if (action_ == nullptr) return;
        guarded(*action_);
        end_.arrive_and_wait();
    }
}

}  // namespace headroom
