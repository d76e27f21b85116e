// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "models/error.hpp"

namespace headroom {

/// What a user would read of the Error that `action` throws: sentence | where | hint; "no error" where it throws none.
template <class Action>
std::string complaint(Action action) {
    try {
        action();
    } catch (const Error& error) {
        return std::string(error.what()) + " | " + error.where() + " | " + error.hint();
    }
    return "no error";
}

}  // namespace headroom
