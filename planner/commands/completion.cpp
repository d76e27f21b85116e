// SPDX-License-Identifier: Apache-2.0
// headroom completion: scripts for bash, zsh and fish, and the manual page.
#include "planner/commands/completion.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "configs/calibration.hpp"
#include "configs/launch.hpp"
#include "configs/load.hpp"
#include "models/recipe.hpp"
#include "planner/commands/commands.hpp"
#include "planner/commands/output.hpp"
#include "planner/commands/program_version.hpp"
#include "reports/table.hpp"

namespace headroom {

namespace {

template <class Names>
std::vector<std::string> words_of(const Names& names) {
    return {names.begin(), names.end()};
}

/// Help in a shell's single quotes.
std::string in_single_quotes(const std::string& text) {
    std::string result = "'";
    for (const char c : text) result += c == '\'' ? std::string("'\\''") : std::string(1, c);
    return result + "'";
}

std::vector<Flag> flags_of(const Synopsis& synopsis) {
    std::vector<Flag> flags;
    for (const FlagGroup& group : synopsis.groups) flags.insert(flags.end(), group.flags.begin(), group.flags.end());
    flags.push_back({"help", "", "show the help of this command", 'h'});
    return flags;
}

std::string bash_values(const Flag& flag) {
    const Choices choices = choices_of(flag.name, flag.value);
    switch (choices.kind) {
        case Choices::Kind::words:
            return fmt::format("mapfile -t COMPREPLY < <(compgen -W '{}' -- \"$word\")", fmt::join(choices.words, " "));
        case Choices::Kind::files:
            return "mapfile -t COMPREPLY < <(compgen -f -- \"$word\")";
        case Choices::Kind::directories:
            return "mapfile -t COMPREPLY < <(compgen -d -- \"$word\")";
        case Choices::Kind::anything:
            break;
    }
    return "COMPREPLY=()";
}

std::string zsh_values(const Flag& flag) {
    const Choices choices = choices_of(flag.name, flag.value);
    switch (choices.kind) {
        case Choices::Kind::words:
            return fmt::format("({})", fmt::join(choices.words, " "));
        case Choices::Kind::files:
            return "_files";
        case Choices::Kind::directories:
            return "_files -/";
        case Choices::Kind::anything:
            break;
    }
    return " ";
}

/// Brackets and colons mean something in a specification of _arguments.
std::string for_arguments(const std::string& text) {
    std::string result;
    for (const char c : text) {
        if (c == '[' || c == ']' || c == ':' || c == '\\') result += '\\';
        result += c;
    }
    return result;
}

}  // namespace

Choices choices_of(const std::string& flag, const std::string& placeholder) {
    using Kind = Choices::Kind;
    if (placeholder == "FILE") return {Kind::files, {}};
    if (placeholder == "DIR") return {Kind::directories, {}};
    if (flag == "model") return {Kind::words, builtin_models()};
    if (flag == "cluster") return {Kind::words, builtin_clusters()};
    if (flag == "calibration") return {Kind::words, builtin_calibrations()};
    if (flag == "method") return {Kind::words, words_of(method_names)};
    if (flag == "implementation") return {Kind::words, words_of(implementation_names)};
    if (flag == "attention-kernel") return {Kind::words, words_of(attention_kernel_names)};
    if (flag == "target") return {Kind::words, words_of(launch_target_names)};
    if (flag == "format") return {Kind::words, {"text", "json", "csv"}};
    if (flag == "mfu") return {Kind::words, {"causal", "full"}};
    return {};
}

std::vector<std::string> positional_words(const std::string& command) {
    if (command == "completion") return {"bash", "zsh", "fish", "man"};
    if (command == "show") {
        return {"models", "clusters", "calibrations", "recipes", "methods",
                "model",  "cluster",  "calibration",  "recipe"};
    }
    return {};
}

std::vector<Described> described_commands() {
    std::vector<Described> list;
    for (const Command& command : commands) {
        if (command.synopsis != nullptr) list.push_back({command.name, command.summary, command.synopsis()});
    }
    return list;
}

std::string bash_completion(const std::vector<Described>& described) {
    std::string names, cases;
    for (const Described& command : described) {
        names += command.name + " ";
        std::vector<std::string> flags;
        std::string values;
        for (const Flag& flag : flags_of(command.synopsis)) {
            const std::string letter = flag.letter != 0 ? fmt::format("-{}", flag.letter) : "";
            flags.push_back(fmt::format("--{}", flag.name));
            if (flag.value[0] == '\0') continue;
            values += fmt::format("        --{}{}) {}; return ;;\n", flag.name, letter.empty() ? "" : "|" + letter,
                                  bash_values(flag));
        }
        cases += fmt::format(
            "    {})\n        case $before in\n{}        esac\n        words='{}'\n        [[ $word == -* ]] || "
            "words='{}'\n"
            "        ;;\n",
            command.name, values, fmt::join(flags, " "), fmt::join(positional_words(command.name), " "));
    }
    return fmt::format(
        "# bash completion of headroom: source it, or save it as\n"
        "# ~/.local/share/bash-completion/completions/headroom\n"
        "_headroom() {{\n"
        "    local word=${{COMP_WORDS[COMP_CWORD]}} before=${{COMP_WORDS[COMP_CWORD-1]}} words=''\n"
        "    COMPREPLY=()\n"
        "    if ((COMP_CWORD == 1)); then\n"
        "        mapfile -t COMPREPLY < <(compgen -W '{}help --help --version' -- \"$word\")\n"
        "        return\n"
        "    fi\n"
        "    case ${{COMP_WORDS[1]}} in\n{}    help) words='{}' ;;\n    esac\n"
        "    mapfile -t COMPREPLY < <(compgen -W \"$words\" -- \"$word\")\n"
        "}}\n"
        "complete -o filenames -F _headroom headroom\n",
        names, cases, names);
}

std::string zsh_completion(const std::vector<Described>& described) {
    std::string names, cases;
    for (const Described& command : described) {
        names += fmt::format("        {}\n", in_single_quotes(command.name + ":" + for_arguments(command.summary)));
        std::string specifications;
        for (const Flag& flag : flags_of(command.synopsis)) {
            std::string tail = fmt::format("[{}]", for_arguments(flag.help));
            if (flag.value[0] != '\0') tail += fmt::format(":{}:{}", for_arguments(flag.value), zsh_values(flag));
            const char* star = flag.repeatable ? "*" : "";
            specifications +=
                fmt::format(" \\\n            {}", in_single_quotes(fmt::format("{}--{}{}", star, flag.name, tail)));
            if (flag.letter != 0) {
                specifications += fmt::format(" \\\n            {}",
                                              in_single_quotes(fmt::format("{}-{}{}", star, flag.letter, tail)));
            }
        }
        const auto words = positional_words(command.name);
        if (!words.empty()) specifications += fmt::format(" \\\n            '1:what:({})'", fmt::join(words, " "));
        cases += fmt::format("    {})\n        _arguments{}\n        ;;\n", command.name, specifications);
    }
    return fmt::format(
        "#compdef headroom\n"
        "# zsh completion of headroom: save it as _headroom in a directory of $fpath\n"
        "_headroom() {{\n"
        "    local -a names\n"
        "    names=(\n{}    )\n"
        "    if ((CURRENT == 2)); then\n"
        "        _describe command names\n"
        "        return\n"
        "    fi\n"
        "    local command=$words[2]\n"
        "    shift words\n"
        "    ((CURRENT--))\n"
        "    case $command in\n{}    esac\n"
        "}}\n"
        "_headroom \"$@\"\n",
        names, cases);
}

std::string fish_completion(const std::vector<Described>& described) {
    std::string text =
        "# fish completion of headroom: save it as ~/.config/fish/completions/headroom.fish\n"
        "complete -c headroom -f\n";
    for (const Described& command : described) {
        text += fmt::format("complete -c headroom -n __fish_use_subcommand -a {} -d {}\n", command.name,
                            in_single_quotes(command.summary));
        const std::string inside =
            fmt::format("complete -c headroom -n '__fish_seen_subcommand_from {}'", command.name);
        for (const Flag& flag : flags_of(command.synopsis)) {
            text += fmt::format("{} -l {}", inside, flag.name);
            if (flag.letter != 0) text += fmt::format(" -s {}", flag.letter);
            if (flag.value[0] != '\0') {
                const Choices choices = choices_of(flag.name, flag.value);
                const bool path = choices.kind == Choices::Kind::files || choices.kind == Choices::Kind::directories;
                text += path ? " -r -F" : " -x";
                if (!choices.words.empty()) text += fmt::format(" -a '{}'", fmt::join(choices.words, " "));
            }
            text += fmt::format(" -d {}\n", in_single_quotes(flag.help));
        }
        const auto words = positional_words(command.name);
        if (!words.empty()) text += fmt::format("{} -a '{}'\n", inside, fmt::join(words, " "));
    }
    return text;
}

Synopsis completion_synopsis() {
    return {"headroom completion",
            "bash|zsh|fish|man",
            "Prints a completion script for a shell, or the manual page.",
            {},
            {"source <(headroom completion bash)", "headroom completion man | man -l -"},
            "",
            1};
}

ExitCode completion_command(const Words& words) {
    if (wants_help(words)) {
        write({}, help_text(completion_synopsis()));
        return ExitCode::ok;
    }
    const Arguments arguments(completion_synopsis(), words);
    const std::string all = "use bash, zsh, fish or man";
    if (arguments.positionals().empty()) throw Error("no shell is named", "headroom completion", all);
    const std::string& shell = arguments.positionals().front();
    const std::vector<Described> list = described_commands();
    if (shell == "bash") {
        write({}, bash_completion(list));
    } else if (shell == "zsh") {
        write({}, zsh_completion(list));
    } else if (shell == "fish") {
        write({}, fish_completion(list));
    } else if (shell == "man") {
        write({}, manual_page(list, program_version()));
    } else {
        throw Error("unknown shell '" + printable(shell) + "'", "headroom completion",
                    suggestion(shell, positional_words("completion"), all));
    }
    return ExitCode::ok;
}

}  // namespace headroom
