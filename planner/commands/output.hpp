// SPDX-License-Identifier: Apache-2.0
// Where a result goes and in which form: --format, --output.
#pragma once

#include <string>

#include "planner/commands/arguments.hpp"
#include "reports/style.hpp"

namespace headroom {

enum class Format { text, json, csv };

FlagGroup output_flags();

struct Output {
    Format format = Format::text;
    std::string path;  ///< empty: standard output
    Style style;
};

/// Refuses at once a format that does not exist and a path that cannot be written, before anything is computed.
Output read_output(const Arguments& arguments);

/// Throws Error naming the flag when no file can be written there.
void check_path(const std::string& path, const std::string& flag);

/// The whole result at once. A file appears complete or not at all; a reader of stdout that went away is no error.
void write(const Output& output, const std::string& result);

}  // namespace headroom
