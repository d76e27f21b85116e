// SPDX-License-Identifier: Apache-2.0
// Configuration files of training codes, read as recipes: torchtitan TOML (upstream and the Untied-Ulysses fork),
// DeepSpeed JSON, ArcticTraining YAML, and launch scripts with their environment and flags. What they say that is no
// setting of a recipe is left aside, with a note; what would change the plan and is not modelled is an error.
#pragma once

#include <functional>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "configs/machine_names.hpp"
#include "configs/reader.hpp"
#include "models/settings.hpp"

namespace headroom {

/// A model as another code calls it.
struct ForeignModel {
    std::string name;
    std::string where;
};

struct RecipeFile {
    Settings settings;
    std::vector<std::string> notes;
    MachineNames machine;  ///< what headroom launch wrote it for
    std::optional<ForeignModel> model;
    /// Method and code where the file implies but does not name them: they count while nothing else is said.
    Settings guess;
};

/// Reads any of them, or a recipe file of our own, by what is in it.
RecipeFile load_recipe_file(const std::string& path);
/// The same of a text; `read` gives the text of a file that it names.
RecipeFile read_recipe_text(const std::string& text, const std::string& path,
                            const std::function<std::string(const std::string&)>& read);

Value parse_toml(const std::string& text, const std::string& file);

/// `export NAME=value` as `env.NAME`, `--flag value` as `flags.flag` (without its dashes), of a shell script that uses
/// no variables in them. A later one wins, as in a shell.
Value parse_script(const std::string& text, const std::string& file);

/// A file whose keys are picked one by one; remembers which.
class ForeignFile {
 public:
    explicit ForeignFile(const Value& root) : root_(root) {}

    /// The value under a dotted key, nullptr when it is not said: absent, null, or "auto".
    const Value* take(std::string_view key);
    /// The same without taking it.
    const Value* look(std::string_view key) const;
    bool has(std::string_view key) const;
    /// Keys nobody took; whole groups by their name.
    std::vector<std::string> left() const;

 private:
    static const Value* search(const Value& root, std::string_view key);
    void collect(const Value& map, std::vector<std::string>& keys) const;

    const Value& root_;
    std::set<std::string, std::less<>> taken_;
};

bool is_torchtitan(const Value& root);
bool is_deepspeed(const Value& root);
bool is_alst(const Value& root);

void read_torchtitan(ForeignFile& file, Settings& settings);
/// A file of DeepSpeed's own: what it does not say is DeepSpeed's default.
void read_deepspeed(ForeignFile& file, Settings& settings);
void read_alst(ForeignFile& file, Settings& settings, std::vector<std::string>& notes);
/// The environment and flags of a launch script; what files it names has been read before.
void read_environment(ForeignFile& file, Settings& settings);
void read_megatron_flags(ForeignFile& file, Settings& settings);

}  // namespace headroom
