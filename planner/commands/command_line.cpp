// SPDX-License-Identifier: Apache-2.0
#include "planner/commands/command_line.hpp"

#include <string_view>

namespace headroom {

namespace {

std::string quoted(const std::string& word) {
    constexpr std::string_view plain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-./=,:+@%";
    if (!word.empty() && word.find_first_not_of(plain) == std::string::npos) return word;
    std::string text = "'";
    for (const char c : word) text += c == '\'' ? std::string("'\\''") : std::string(1, c);
    return text + "'";
}

}  // namespace

std::string command_line(const std::string& command, const std::vector<std::string>& words) {
    std::string text = command;
    for (const std::string& word : words) text += " " + quoted(word);
    return text;
}

std::vector<std::string> typed_flags(const Arguments& arguments, const std::vector<std::string>& names) {
    std::vector<std::string> flags;
    for (const std::string& name : names) {
        if (const auto value = arguments.get(name)) flags.push_back("--" + name + " " + quoted(*value));
    }
    return flags;
}

std::vector<std::string> without_flag(const std::vector<std::string>& words, const std::string& name, char letter) {
    const std::string dashed = "--" + name;
    const std::string short_form = letter == 0 ? std::string() : std::string("-") + letter;
    std::vector<std::string> kept;
    for (std::size_t i = 0; i < words.size(); ++i) {
        const std::string& word = words[i];
        if (word == dashed || (letter != 0 && word == short_form)) {
            ++i;  // its value
        } else if (!word.starts_with(dashed + "=") &&
                   (letter == 0 || !word.starts_with(short_form) || word.starts_with("--"))) {
            kept.push_back(word);
        }
    }
    return kept;
}

}  // namespace headroom
