// SPDX-License-Identifier: Apache-2.0
#include "calibrate/run/trouble.hpp"

#include <fmt/format.h>

namespace headroom {

void Trouble::reset(const std::atomic<bool>* interrupted) {
    const std::lock_guard lock(mutex_);
    first_.reset();
    any_ = false;
    interrupted_ = interrupted;
}

void Trouble::report(int rank, const Error& error) {
    const std::lock_guard lock(mutex_);
    if (first_) return;
    const std::string what = error.what();
    const std::string named = what.starts_with("rank ") ? what : fmt::format("rank {}: {}", rank, what);
    first_.emplace(named, error.where(), error.hint(), error.exit_code());
    any_ = true;
}

void Trouble::check() const {
    if (any()) throw Error("stopped", "", "", ExitCode::failure);
}

Error Trouble::error() const {
    const std::lock_guard lock(mutex_);
    if (interrupted_ != nullptr && *interrupted_) return Error("interrupted", "", "", ExitCode::interrupted);
    return first_.value_or(
        Error("the run ended without a reason", "", "this is a bug: please report it", ExitCode::failure));
}

}  // namespace headroom
