// SPDX-License-Identifier: Apache-2.0
// Runs the real program as a shell would, and keeps all it said.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace headroom {

struct Outcome {
    int status = -1;  ///< exit status; 128 + number after a signal
    std::string out;
    std::string err;
};

/// Without a terminal; `environment` holds NAME=value entries added to the test's own.
Outcome run_headroom(const std::vector<std::string>& arguments, const std::vector<std::string>& environment = {});

/// The same through /bin/sh, for pipes and redirections; $HEADROOM is the program.
Outcome run_shell(const std::string& script);

/// A directory of its own, removed at the end.
class TemporaryDirectory {
 public:
    TemporaryDirectory();
    ~TemporaryDirectory();
    TemporaryDirectory(const TemporaryDirectory&) = delete;
    TemporaryDirectory& operator=(const TemporaryDirectory&) = delete;

    std::string path(std::string_view name = "") const { return (path_ / name).string(); }
    std::string write(std::string_view name, std::string_view text) const;
    std::vector<std::string> names() const;  ///< what is in it, sorted

 private:
    std::filesystem::path path_;
};

std::string read_file(const std::string& path);
std::vector<std::string> lines_of(const std::string& text);
bool contains(const std::string& text, std::string_view part);

}  // namespace headroom
