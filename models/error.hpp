// SPDX-License-Identifier: Apache-2.0
// The one exception type of the program: what is wrong, where it stands, what to do about it.
#pragma once

#include <stdexcept>
#include <string>
#include <utility>

namespace headroom {

enum class ExitCode { ok = 0, failure = 1, usage = 2, does_not_fit = 3, interrupted = 130 };

/// Thrown for anything a user can put right. `what()` is the sentence, without a full stop.
class Error : public std::runtime_error {
 public:
    explicit Error(const std::string& what, std::string where = {}, std::string hint = {},
                   ExitCode exit_code = ExitCode::usage)
        : std::runtime_error(what), where_(std::move(where)), hint_(std::move(hint)), exit_code_(exit_code) {}

    /// A flag (`--ulysses`), or file:line:column and key. May be empty.
    const std::string& where() const { return where_; }
    /// What to do, as an imperative. May be empty.
    const std::string& hint() const { return hint_; }
    ExitCode exit_code() const { return exit_code_; }

 private:
    std::string where_;
    std::string hint_;
    ExitCode exit_code_;
};

}  // namespace headroom
