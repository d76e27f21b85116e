// SPDX-License-Identifier: Apache-2.0
// Colour for terminals. A default Style leaves every text as it is.
#pragma once

#include <string>

namespace headroom {

struct Style {
    bool colour = false;

    std::string good(const std::string& text) const { return wrap("\033[1;32m", text); }
    std::string bad(const std::string& text) const { return wrap("\033[1;31m", text); }
    std::string strong(const std::string& text) const { return wrap("\033[1m", text); }

 private:
    std::string wrap(const char* code, const std::string& text) const {
        return colour ? code + text + "\033[0m" : text;
    }
};

}  // namespace headroom
