// SPDX-License-Identifier: Apache-2.0
// Ctrl-C and a scheduler's SIGTERM, for work that ends between two records.
#pragma once

#include <atomic>

namespace headroom {

/// Catches both from here on. The flag becomes true with the first; a second Ctrl-C ends the process at once.
const std::atomic<bool>& catch_interrupts();

}  // namespace headroom
