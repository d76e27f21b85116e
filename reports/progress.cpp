// SPDX-License-Identifier: Apache-2.0
#include "reports/progress.hpp"

#include <fmt/core.h>

#include <cmath>
#include <utility>

#include "reports/numbers.hpp"

namespace headroom {

namespace {

constexpr double quiet_seconds = 1.0;
constexpr double between_draws = 0.1;  // seconds

std::string time_left(double seconds) {
    if (seconds < 120) return fmt::format("{:.0f} s left", std::ceil(seconds));
    const auto minutes = static_cast<std::int64_t>(std::ceil(seconds / 60));
    if (minutes < 60) return fmt::format("{} min left", minutes);
    return fmt::format("{} h {:02} min left", minutes / 60, minutes % 60);
}

}  // namespace

Progress::Progress(std::string unit, std::int64_t total, std::int64_t already, Clock clock, Terminal terminal)
    : unit_(std::move(unit)),
      total_(total),
      already_(already),
      clock_(std::move(clock)),
      terminal_(std::move(terminal)),
      start_(clock_()) {}

std::string Progress::line(std::int64_t done, double elapsed) const {
    const std::int64_t percent = total_ > 0 ? done * 100 / total_ : 100;
    std::string text = fmt::format("{} of {} {} ({}%)", with_separators(done), with_separators(total_), unit_, percent);
    const std::int64_t fresh = done - already_;
    if (fresh <= 0 || elapsed <= 0) return text;
    const double rate = static_cast<double>(fresh) / elapsed;
    text += rate < 10 ? fmt::format(", {:.1f}/s", rate) : fmt::format(", {}/s", with_separators(std::llround(rate)));
    return text + ", " + time_left(static_cast<double>(total_ - done) / rate);
}

void Progress::update(std::int64_t done) {
    const double now = clock_();
    if (now - start_ < quiet_seconds || (visible_ && now - drawn_ < between_draws)) return;
    terminal_("\r" + line(done, now - start_) + "\033[K");
    drawn_ = now;
    visible_ = true;
}

void Progress::finish() {
    if (visible_) terminal_("\r\033[K");
    visible_ = false;
}

}  // namespace headroom
