// SPDX-License-Identifier: Apache-2.0
// Shell completions and the manual page, made from the tables that --help is made from.
#pragma once

#include <string>
#include <vector>

#include "planner/commands/arguments.hpp"

namespace headroom {

/// A sub-command with its flags.
struct Described {
    std::string name, summary;
    Synopsis synopsis;
};

/// All that describe themselves, in the order of --help.
std::vector<Described> described_commands();

std::string bash_completion(const std::vector<Described>& described);
std::string zsh_completion(const std::vector<Described>& described);
std::string fish_completion(const std::vector<Described>& described);
/// roff, for man(1).
std::string manual_page(const std::vector<Described>& described, const std::string& version);

/// What a flag takes: words to choose from, or files, or directories, or anything.
struct Choices {
    enum class Kind { words, files, directories, anything } kind = Kind::anything;
    std::vector<std::string> words;
    bool or_files = false;  ///< a file may stand for a word
    bool list = false;      ///< words with commas between them
};
Choices choices_of(const std::string& command, const Flag& flag);

/// Words that may stand behind a command's name ("bash" behind completion), and behind such a word.
struct Positional {
    std::string word;
    Choices next = {};
};
std::vector<Positional> positional_words(const std::string& command);

}  // namespace headroom
