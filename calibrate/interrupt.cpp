// SPDX-License-Identifier: Apache-2.0
#include "calibrate/interrupt.hpp"

#include <csignal>

namespace headroom {
namespace {

std::atomic<bool> interrupted{false};  // NOLINT: a signal handler can reach nothing else

void interrupt(int) {
    interrupted = true;
    std::signal(SIGINT, SIG_DFL);  // a second one ends at once
}

}  // namespace

const std::atomic<bool>& catch_interrupts() {
    std::signal(SIGINT, interrupt);
    std::signal(SIGTERM, interrupt);
    return interrupted;
}

}  // namespace headroom
