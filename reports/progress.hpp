// SPDX-License-Identifier: Apache-2.0
// One line on a terminal that says how far a long job is: count, share, rate, time left. Clock and terminal are
// functions, so that tests need neither.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

namespace headroom {

class Progress {
 public:
    using Clock = std::function<double()>;  ///< seconds, from any origin
    using Terminal = std::function<void(std::string_view)>;

    /// `unit` stands behind the counts ("rows"). `already` were done before this run and say nothing about the rate.
    Progress(std::string unit, std::int64_t total, std::int64_t already, Clock clock, Terminal terminal);

    /// Draws when the job has run for a second, and then at most ten times a second.
    void update(std::int64_t done);
    /// Takes the line away; nothing is written when none was drawn.
    void finish();

    /// "12,345 of 100,000 rows (12%), 45,678/s, 2 s left".
    std::string line(std::int64_t done, double elapsed) const;

 private:
    std::string unit_;
    std::int64_t total_, already_;
    Clock clock_;
    Terminal terminal_;
    double start_, drawn_ = 0;
    bool visible_ = false;
};

}  // namespace headroom
