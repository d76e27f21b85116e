// SPDX-License-Identifier: Apache-2.0
// A recipe as the files and flags of the code that runs it, and what cannot be said there.
#pragma once

#include <array>
#include <string>
#include <string_view>
#include <vector>

#include "configs/machine_names.hpp"
#include "models/cluster.hpp"
#include "models/recipe.hpp"
#include "models/transformer.hpp"

namespace headroom {

enum class LaunchTarget { torchtitan, megatron_deepspeed, deepspeed, alst, untied_ulysses };
inline constexpr std::array<std::string_view, 5> launch_target_names{"torchtitan", "megatron-deepspeed", "deepspeed",
                                                                     "alst", "untied-ulysses"};
constexpr std::string_view to_string(LaunchTarget v) { return launch_target_names[static_cast<std::size_t>(v)]; }

struct LaunchFile {
    std::string name;
    std::string text;
};

struct Launch {
    std::vector<LaunchFile> files;  ///< the first is the one to start, and to read back as a recipe
    /// Settings that the target has no word for: what was asked, and what the code does instead.
    std::vector<std::string> not_expressed;
    std::vector<std::string> to_fill_in;  ///< what a recipe does not know: data, tokenizer, names of models
};

/// The target whose code the recipe's implementation is. Throws Error for `lean`, which nobody ships.
LaunchTarget launch_target(Implementation implementation);

/// Throws Error when the target does not run the recipe's method or implementation. `machine` goes into the files, so
/// that they are planned for what they were written for.
Launch launch_files(LaunchTarget target, const Recipe& recipe, const Transformer& model, const Cluster& cluster,
                    const MachineNames& machine = {});

/// A string of TOML, YAML and JSON alike.
std::string in_quotes(const std::string& text);

// One writer for each target; launch_files adds what they do not express.
Launch torchtitan_files(const Recipe& recipe, const Transformer& model, const Cluster& cluster);
Launch untied_ulysses_files(const Recipe& recipe, const Transformer& model, const Cluster& cluster);
Launch megatron_files(const Recipe& recipe, const Transformer& model, const Cluster& cluster);
Launch deepspeed_files(const Recipe& recipe, const Transformer& model, const Cluster& cluster);
Launch alst_files(const Recipe& recipe, const Transformer& model, const Cluster& cluster);

}  // namespace headroom
