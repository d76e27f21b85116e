// SPDX-License-Identifier: Apache-2.0
// Flags of a sub-command: declared as a table, parsed strictly, printed as help. Boost.Program_options does the
// parsing, without guessing; what it says about mistakes is turned into our errors.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace headroom {

struct Flag {
    const char* name;   ///< long form without dashes
    const char* value;  ///< placeholder in the help; empty for a switch
    const char* help;
    char letter = 0;  ///< short form, 0 for none
    bool repeatable = false;
};

struct FlagGroup {
    const char* title;
    std::vector<Flag> flags;
};

struct Synopsis {
    std::string command;  ///< "headroom plan"
    std::string usage;    ///< what stands behind the command
    std::string summary;
    std::vector<FlagGroup> groups;
    std::vector<std::string> examples;
    std::string notes = {};  ///< last paragraph of the help
    std::size_t positionals = 0;
};

class Arguments {
 public:
    /// Throws Error (usage) for unknown, repeated or incomplete flags and for stray words.
    Arguments(const Synopsis& synopsis, const std::vector<std::string>& words);

    bool has(const std::string& flag) const { return values_.contains(flag); }
    std::optional<std::string> get(const std::string& flag) const;
    std::vector<std::string> all(const std::string& flag) const;
    const std::vector<std::string>& positionals() const { return positionals_; }

 private:
    std::map<std::string, std::vector<std::string>> values_;
    std::vector<std::string> positionals_;
};

/// True when a word before `--` asks for help.
bool wants_help(const std::vector<std::string>& words);
std::string help_text(const Synopsis& synopsis);

/// A whole number from 1 to `largest`; `flag` with its dashes.
int parse_count(const std::string& text, const std::string& flag, int largest);

/// "a", "did you mean b?" when there is a near candidate, else `otherwise`.
std::string suggestion(std::string_view typed, const std::vector<std::string>& candidates,
                       const std::string& otherwise);

}  // namespace headroom
