// SPDX-License-Identifier: Apache-2.0
// What ends a case that several ranks run together: the first error of any of them, or Ctrl-C.
#pragma once

#include <atomic>
#include <mutex>
#include <optional>

#include "models/error.hpp"

namespace headroom {

class Trouble {
 public:
    /// A new case. `interrupted` may be null.
    void reset(const std::atomic<bool>* interrupted);
    /// Keeps the first one, with the rank in its text.
    void report(int rank, const Error& error);
    bool any() const { return any_ || (interrupted_ != nullptr && *interrupted_); }
    /// Throws when there is any: what a rank calls between launches and while it waits.
    void check() const;
    /// The error of the case.
    Error error() const;

 private:
    std::atomic<bool> any_{false};
    const std::atomic<bool>* interrupted_ = nullptr;
    mutable std::mutex mutex_;
    std::optional<Error> first_;
};

}  // namespace headroom
