// SPDX-License-Identifier: Apache-2.0
// A headless Chromium that opens a page and tells what happened there, over the DevTools protocol on a pipe.
#pragma once

#include <sys/types.h>

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "tests/run_headroom.hpp"

namespace headroom {

/// Where a Chromium is installed; nothing where none is.
std::optional<std::string> find_chromium();

class Chromium {
 public:
    using Json = nlohmann::json;

    explicit Chromium(const std::string& program);
    ~Chromium();
    Chromium(const Chromium&) = delete;
    Chromium& operator=(const Chromium&) = delete;

    /// Opens a file in a window of this size, from a blank page, and waits until it has loaded and painted.
    void open(const std::string& file, int width, int height, bool dark);
    /// The value of an expression in the page. Throws when it throws.
    Json evaluate(const std::string& expression);
    /// Part of the page as a PNG file.
    void screenshot(const std::string& file, int top, int height);
    int page_height();
    /// The page as a PDF file, A4.
    std::string print();
    /// Shows the page as paper would, as wide as A4 between its margins, until the next open().
    void emulate_paper();

    /// Since open(): console messages of all kinds, uncaught exceptions, and violated policies.
    const std::vector<std::string>& complaints() const { return complaints_; }
    /// Since open(): addresses that were asked for, the page itself left out.
    const std::vector<std::string>& requests() const { return requests_; }

 private:
    Json call(const std::string& method, const Json& parameters = Json::object());
    void wait_for(const std::string& event);
    Json receive();
    void note(const Json& event);

    TemporaryDirectory profile_;
    pid_t child_ = 0;
    int to_ = -1, from_ = -1;
    int last_id_ = 0;
    std::string buffer_, session_, page_;
    std::vector<std::string> seen_;  ///< names of events since open()
    std::vector<std::string> complaints_, requests_;
};

}  // namespace headroom
