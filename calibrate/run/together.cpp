// SPDX-License-Identifier: Apache-2.0
#include "calibrate/run/together.hpp"

#include <chrono>
#include <thread>

namespace headroom {
namespace {

using namespace std::chrono_literals;

/// Watches from the side while the ranks act.
class Supervisor {
 public:
    Supervisor(const Trouble& trouble, const std::function<void()>& abort)
        : thread_([this, &trouble, &abort] {
              while (!done_ && !trouble.any()) std::this_thread::sleep_for(5ms);
              for (int i = 0; i < 100 && !done_; ++i) std::this_thread::sleep_for(5ms);
              if (!done_) abort();
          }) {}
    ~Supervisor() {
        done_ = true;
        thread_.join();
    }
    Supervisor(const Supervisor&) = delete;
    Supervisor& operator=(const Supervisor&) = delete;

 private:
    std::atomic<bool> done_{false};
    std::thread thread_;
};

}  // namespace

void act_together(Team& team, Trouble& trouble, const std::function<void(int)>& action,
                  const std::function<void()>& abort) {
    const Supervisor supervisor(trouble, abort);
    team.run([&](int rank) {
        try {
            action(rank);
        } catch (const Error& error) {
            // Whoever only stops because of another says so too, too late to be kept.
            trouble.report(rank, error);
            throw;
        } catch (const std::exception& error) {
            trouble.report(rank, Error(error.what(), "", "", ExitCode::failure));
            throw;
        }
    });
}

}  // namespace headroom
