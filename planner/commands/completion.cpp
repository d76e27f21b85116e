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

/// What sets COMPREPLY.
std::string bash_choices(const Choices& choices) {
    switch (choices.kind) {
        case Choices::Kind::words:
            return fmt::format("_headroom_{} '{}'", choices.list ? "list" : "words", fmt::join(choices.words, " ")) +
                   (choices.or_files ? " -f" : "");
        case Choices::Kind::files:
            return "_headroom_words '' -f";
        case Choices::Kind::directories:
            return "_headroom_words '' -d";
        case Choices::Kind::anything:
            break;
    }
    return "COMPREPLY=()";
}

/// The action of a specification of _arguments.
std::string zsh_choices(const Choices& choices) {
    const std::string words = fmt::format("{}", fmt::join(choices.words, " "));
    switch (choices.kind) {
        case Choices::Kind::words:
            if (choices.list) return fmt::format("_sequence compadd - {}", words);
            if (choices.or_files) return fmt::format("{{compadd - {}; _files}}", words);
            return fmt::format("({})", words);
        case Choices::Kind::files:
            return "_files";
        case Choices::Kind::directories:
            return "_files -/";
        case Choices::Kind::anything:
            break;
    }
    return " ";
}

std::string fish_choices(const Choices& choices) {
    const bool path = choices.kind == Choices::Kind::files || choices.kind == Choices::Kind::directories;
    std::string text = path || choices.or_files ? " -r -F" : " -x";
    if (choices.words.empty()) return text;
    if (choices.list) return text + fmt::format(" -a '(__fish_append , {})'", fmt::join(choices.words, " "));
    return text + fmt::format(" -a '{}'", fmt::join(choices.words, " "));
}

std::string words_text(const std::vector<Positional>& positionals) {
    std::string text;
    for (const Positional& positional : positionals) text += (text.empty() ? "" : " ") + positional.word;
    return text;
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

Choices choices_of(const std::string& command, const Flag& flag) {
    using Kind = Choices::Kind;
    const std::string name = flag.name;
    const std::string placeholder = flag.value;
    const bool grid = command == "sweep";
    if (placeholder == "FILE") return {Kind::files, {}};
    if (placeholder == "DIR") return {Kind::directories, {}};
    if (name == "model") return {Kind::words, builtin_models(), !grid, grid};
    if (name == "cluster") return {Kind::words, builtin_clusters(), !grid, grid};
    if (name == "calibration" || name == "base") return {Kind::words, builtin_calibrations(), true};
    if (name == "method") return {Kind::words, words_of(method_names), false, grid || placeholder == "METHODS"};
    if (name == "implementation") return {Kind::words, words_of(implementation_names), false, grid};
    if (name == "attention-kernel") return {Kind::words, words_of(attention_kernel_names), false, grid};
    if (name == "target") return {Kind::words, words_of(launch_target_names)};
    if (name == "format" && grid) return {Kind::words, {"csv", "jsonl", "html"}};
    if (name == "format") return {Kind::words, {"text", "json", "csv"}};
    if (name == "mfu") return {Kind::words, {"causal", "full"}};
    return {};
}

std::vector<Positional> positional_words(const std::string& command) {
    using Kind = Choices::Kind;
    if (command == "completion") return {{"bash"}, {"zsh"}, {"fish"}, {"man"}};
    if (command == "calibrate")
        return {{"probes"}, {"fit", {Kind::files, {}}}, {"compare", {Kind::files, {}}}, {"run"}, {"check"}};
    if (command == "show") {
        return {{"models"},
                {"clusters"},
                {"calibrations"},
                {"recipes"},
                {"methods"},
                {"model", {Kind::words, builtin_models(), true}},
                {"cluster", {Kind::words, builtin_clusters(), true}},
                {"calibration", {Kind::words, builtin_calibrations(), true}},
                {"recipe", {Kind::words, words_of(method_names)}}};
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
                                  bash_choices(choices_of(command.name, flag)));
        }
        const auto positionals = positional_words(command.name);
        for (const Positional& positional : positionals) {
            if (positional.next.kind == Choices::Kind::anything) continue;
            values += fmt::format("        {}) {}; return ;;\n", positional.word, bash_choices(positional.next));
        }
        cases += fmt::format(
            "    {})\n        case $before in\n{}        esac\n        words='{}'\n        [[ $word == -* ]] || "
            "words='{}'\n"
            "        ;;\n",
            command.name, values, fmt::join(flags, " "), words_text(positionals));
    }
    return fmt::format(
        "# bash completion of headroom: source it, or save it as\n"
        "# ~/.local/share/bash-completion/completions/headroom\n"
        "# Words that begin like the last one typed; with -f or -d files or directories too.\n"
        "_headroom_words() {{ mapfile -t COMPREPLY < <(compgen -W \"$@\" -- \"${{COMP_WORDS[COMP_CWORD]}}\"); }}\n"
        "# The same behind the last comma.\n"
        "_headroom_list() {{\n"
        "    local word=${{COMP_WORDS[COMP_CWORD]}} stem=''\n"
        "    [[ $word != *,* ]] || stem=${{word%,*}},\n"
        "    mapfile -t COMPREPLY < <(compgen -P \"$stem\" -W \"$1\" -- \"${{word##*,}}\")\n"
        "}}\n"
        "_headroom() {{\n"
        "    local word=${{COMP_WORDS[COMP_CWORD]}} before=${{COMP_WORDS[COMP_CWORD-1]}} words=''\n"
        "    COMPREPLY=()\n"
        "    if ((COMP_CWORD == 1)); then\n"
        "        _headroom_words '{}help --help --version'\n"
        "        return\n"
        "    fi\n"
        "    case ${{COMP_WORDS[1]}} in\n{}    help) words='{}' ;;\n    esac\n"
        "    _headroom_words \"$words\"\n"
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
            if (flag.value[0] != '\0') {
                tail += fmt::format(":{}:{}", for_arguments(flag.value), zsh_choices(choices_of(command.name, flag)));
            }
            const char* star = flag.repeatable ? "*" : "";
            specifications +=
                fmt::format(" \\\n            {}", in_single_quotes(fmt::format("{}--{}{}", star, flag.name, tail)));
            if (flag.letter != 0) {
                specifications += fmt::format(" \\\n            {}",
                                              in_single_quotes(fmt::format("{}-{}{}", star, flag.letter, tail)));
            }
        }
        const auto positionals = positional_words(command.name);
        std::string before;
        if (!positionals.empty()) {
            specifications += fmt::format(" \\\n            '1:what:({})'", words_text(positionals));
        }
        for (const Positional& positional : positionals) {
            if (positional.next.kind == Choices::Kind::anything) continue;
            before += fmt::format("        {}) next={} ;;\n", positional.word,
                                  in_single_quotes("2:name:" + zsh_choices(positional.next)));
        }
        if (!before.empty()) {
            before = fmt::format("        local next='2:name: '\n        case $words[2] in\n{}        esac\n", before);
            specifications += " \\\n            $next";
        }
        cases += fmt::format("    {})\n{}        _arguments{}\n        ;;\n", command.name, before, specifications);
    }
    return fmt::format(
        "#compdef headroom\n"
        "# zsh completion of headroom: source it behind compinit, or save it as _headroom in a directory of $fpath\n"
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
        "if [[ $funcstack[1] == _headroom ]]; then\n"
        "    _headroom \"$@\"\n"
        "else\n"
        "    compdef _headroom headroom\n"
        "fi\n",
        names, cases);
}

std::string fish_completion(const std::vector<Described>& described) {
    std::string text =
        "# fish completion of headroom: save it as ~/.config/fish/completions/headroom.fish\n"
        "complete -c headroom -f\n";
    for (const Described& command : described) {
        text += fmt::format("complete -c headroom -n __fish_use_subcommand -a {} -d {}\n", command.name,
                            in_single_quotes(command.summary));
        const std::string seen = "__fish_seen_subcommand_from " + command.name;
        const std::string inside = fmt::format("complete -c headroom -n '{}'", seen);
        for (const Flag& flag : flags_of(command.synopsis)) {
            text += fmt::format("{} -l {}", inside, flag.name);
            if (flag.letter != 0) text += fmt::format(" -s {}", flag.letter);
            if (flag.value[0] != '\0') text += fish_choices(choices_of(command.name, flag));
            text += fmt::format(" -d {}\n", in_single_quotes(flag.help));
        }
        const auto positionals = positional_words(command.name);
        if (positionals.empty()) continue;
        text += fmt::format("complete -c headroom -n '{}; and not __fish_seen_subcommand_from {}' -a '{}'\n", seen,
                            words_text(positionals), words_text(positionals));
        for (const Positional& positional : positionals) {
            if (positional.next.kind == Choices::Kind::anything) continue;
            const bool files = positional.next.or_files || positional.next.kind == Choices::Kind::files;
            text += fmt::format("complete -c headroom -n '{}; and __fish_seen_subcommand_from {}' -a '{}'{}\n", seen,
                                positional.word, fmt::join(positional.next.words, " "), files ? " -F" : "");
        }
    }
    return text;
}

Synopsis completion_synopsis() {
    return {"headroom completion",
            "bash|zsh|fish|man",
            "Prints a completion script for a shell, or the manual page.",
            {},
            {"source <(headroom completion bash)", "source <(headroom completion zsh)",
             "headroom completion fish | source", "headroom completion man | man -l -"},
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
                    suggestion(shell, {"bash", "zsh", "fish", "man"}, all));
    }
    return ExitCode::ok;
}

}  // namespace headroom
