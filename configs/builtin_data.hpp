// SPDX-License-Identifier: Apache-2.0
// The data files that are compiled into the program: models/*.json, clusters/*.yaml, recipes/*.yaml and so on.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace headroom {

struct BuiltinFile {
    std::string_view path;  ///< relative to configs/: `clusters/h200.yaml`
    std::string_view text;
};

/// All of them, in the order of their paths.
std::span<const BuiltinFile> builtin_files();

/// The text of `folder/name.*`; nothing when there is none.
std::optional<std::string_view> builtin_text(std::string_view folder, std::string_view name);
/// The names (without extension) in a folder, in natural order: qwen3-8b before qwen3-14b.
std::vector<std::string> builtin_names(std::string_view folder);

}  // namespace headroom
