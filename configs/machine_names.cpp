// SPDX-License-Identifier: Apache-2.0
#include "configs/machine_names.hpp"

#include <array>
#include <utility>

#include "configs/foreign.hpp"

namespace headroom {
namespace {

constexpr std::string_view mark = "# headroom: ";

using Field = std::optional<std::string> MachineNames::*;
constexpr std::array<std::pair<const char*, Field>, 4> fields{{{"model", &MachineNames::model},
                                                               {"cluster", &MachineNames::cluster},
                                                               {"nodes", &MachineNames::nodes},
                                                               {"gpus", &MachineNames::gpus}}};

/// One word of a shell and of one line.
std::string shell_word(const std::string& text) {
    constexpr const char* plain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-./:@+,";
    if (!text.empty() && text.find_first_not_of(plain) == std::string::npos) return text;
    std::string word = "'";
    for (const char c : text) {
        if (c == '\'') {
            word += "'\\''";
        } else {
            word += static_cast<unsigned char>(c) < 0x20 ? '?' : c;
        }
    }
    return word + "'";
}

}  // namespace

std::string flags_of(const MachineNames& machine) {
    std::string line;
    for (const auto& [name, field] : fields) {
        if (!(machine.*field)) continue;
        line += (line.empty() ? "--" : " --") + std::string(name) + " " + shell_word(*(machine.*field));
    }
    return line;
}

std::string machine_comment(const MachineNames& machine) {
    const std::string flags = flags_of(machine);
    return flags.empty() ? flags : std::string(mark) + flags + "\n";
}

MachineNames read_machine_comment(const std::string& text, const std::string& path) {
    std::size_t at = text.find(mark);
    while (at != std::string::npos && at > 0 && text[at - 1] != '\n') at = text.find(mark, at + 1);
    MachineNames machine;
    if (at == std::string::npos) return machine;
    at += mark.size();
    const Value root = parse_script(text.substr(at, text.find('\n', at) - at), path);
    ForeignFile line(root);
    for (const auto& [name, field] : fields) {
        if (const Value* value = line.take("flags." + std::string(name))) machine.*field = value->text;
    }
    return machine;
}

}  // namespace headroom
