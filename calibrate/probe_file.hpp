// SPDX-License-Identifier: Apache-2.0
// The record of a probe session: JSON lines, first the provenance, then one line for each finished probe. A line is
// on the disk before the next probe starts, so whatever ends a session costs one probe.
#pragma once

#include <string>
#include <vector>

#include "calibrate/probe.hpp"

namespace headroom {

struct ProbeFile {
    std::string name;            ///< without the folder
    Json provenance;             ///< of the last session in the file
    std::vector<Json> records;   ///< {"record": "probe", ...}, in file order
    std::int64_t whole_bytes{};  ///< up to the end of the last complete line
    bool cut = false;            ///< something incomplete follows
};

/// Throws Error with file:line for text that is no record, another schema or another method version. An incomplete
/// last line is no error: a session that was ended leaves it.
ProbeFile parse_probe_file(const std::string& text, const std::string& name);
ProbeFile read_probe_file(const std::string& path);

/// Throws Error when the two were taken on different machines or software.
void require_same_machine(const Json& before, const Json& now, const std::string& path);

/// Names of the probes that need not run again: those that ended well or do not apply.
std::vector<std::string> finished_probes(const ProbeFile& file);

class ProbeWriter {
 public:
    /// Creates the file (it must not exist), or keeps its first `keep` bytes and goes on behind them.
    static ProbeWriter create(const std::string& path);
    static ProbeWriter resume(const std::string& path, std::int64_t keep);
    /// Standard output.
    static ProbeWriter standard_output();
    ProbeWriter(ProbeWriter&& other) noexcept;
    ProbeWriter& operator=(ProbeWriter&&) = delete;
    ~ProbeWriter();

    /// One line, written and synchronised. Throws Error (a full disk); the lines before it stay.
    void write(const Json& record);

 private:
    ProbeWriter(int file, std::string path) : file_(file), path_(std::move(path)) {}
    int file_;
    std::string path_;
};

}  // namespace headroom
