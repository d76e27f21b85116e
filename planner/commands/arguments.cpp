// SPDX-License-Identifier: Apache-2.0
#include "planner/commands/arguments.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <boost/program_options.hpp>
#include <charconv>

#include "configs/load.hpp"
#include "models/error.hpp"
#include "reports/table.hpp"

namespace headroom {

namespace po = boost::program_options;

namespace {

constexpr const char* positional_key = "positional";

std::string dashed(const std::string& name) {
    if (name.starts_with('-')) return name;
    return (name.size() == 1 ? "-" : "--") + name;
}

po::options_description describe(const Synopsis& synopsis) {
    po::options_description description;
    for (const FlagGroup& group : synopsis.groups) {
        for (const Flag& flag : group.flags) {
            std::string names = flag.name;
            if (flag.letter != 0) names += std::string(",") + flag.letter;
            if (flag.value[0] == '\0') {
                description.add_options()(names.c_str(), po::bool_switch());
            } else if (flag.repeatable) {
                description.add_options()(names.c_str(), po::value<std::vector<std::string>>()->composing());
            } else {
                description.add_options()(names.c_str(), po::value<std::string>());
            }
        }
    }
    description.add_options()(positional_key, po::value<std::vector<std::string>>());
    return description;
}

std::vector<std::string> flag_names(const Synopsis& synopsis) {
    std::vector<std::string> names{"--help"};
    for (const FlagGroup& group : synopsis.groups) {
        for (const Flag& flag : group.flags) names.push_back(dashed(flag.name));
    }
    return names;
}

po::variables_map parse(const Synopsis& synopsis, const std::vector<std::string>& words) {
    const std::string see_help = fmt::format("{} --help lists the flags", synopsis.command);
    const po::options_description description = describe(synopsis);
    po::positional_options_description positionals;
    positionals.add(positional_key, -1);
    po::variables_map values;
    try {
        namespace style = po::command_line_style;
        po::store(po::command_line_parser(words)
                      .options(description)
                      .positional(positionals)
                      .style(style::unix_style & ~style::allow_guessing)
                      .run(),
                  values);
    } catch (const po::unknown_option& error) {
        const std::string whole = dashed(error.get_option_name());
        const std::string typed = whole.substr(0, whole.find('='));
        throw Error("unknown flag " + typed, synopsis.command, suggestion(typed, flag_names(synopsis), see_help));
    } catch (const po::multiple_occurrences& error) {
        const std::string flag = dashed(error.get_option_name());
        throw Error(flag + " is given more than once", synopsis.command, "keep one of them");
    } catch (const po::error_with_option_name& error) {
        const std::string flag = dashed(error.get_option_name());
        if (dynamic_cast<const po::invalid_command_line_syntax*>(&error) == nullptr) {
            throw Error("cannot read the value", flag, see_help);
        }
        const auto kind = dynamic_cast<const po::invalid_command_line_syntax&>(error).kind();
        const bool extra = kind == po::invalid_syntax::extra_parameter;
        throw Error(flag + (extra ? " takes no value" : " needs a value"), synopsis.command, see_help);
    } catch (const po::error& error) {
        throw Error(error.what(), synopsis.command, see_help);
    }
    return values;
}

}  // namespace

Arguments::Arguments(const Synopsis& synopsis, const std::vector<std::string>& words) {
    const po::variables_map values = parse(synopsis, words);
    for (const auto& [name, variable] : values) {
        const auto& value = variable.value();
        if (const auto* list = boost::any_cast<std::vector<std::string>>(&value)) values_[name] = *list;
        if (const auto* text = boost::any_cast<std::string>(&value)) values_[name] = {*text};
        if (const auto* given = boost::any_cast<bool>(&value); given && *given) values_[name] = {};
    }
    if (const auto found = values_.find(positional_key); found != values_.end()) {
        positionals_ = std::move(found->second);
        values_.erase(found);
    }
    if (positionals_.size() > synopsis.positionals) {
        const std::string& stray = positionals_[synopsis.positionals];
        throw Error(fmt::format("unexpected argument '{}'", printable(stray)), synopsis.command,
                    suggestion("--" + stray, flag_names(synopsis), synopsis.command + " --help shows the usage"));
    }
}

std::optional<std::string> Arguments::get(const std::string& flag) const {
    const auto found = values_.find(flag);
    if (found == values_.end() || found->second.empty()) return std::nullopt;
    return found->second.front();
}

std::vector<std::string> Arguments::all(const std::string& flag) const {
    const auto found = values_.find(flag);
    return found == values_.end() ? std::vector<std::string>{} : found->second;
}

bool wants_help(const std::vector<std::string>& words) {
    const auto end = std::find(words.begin(), words.end(), "--");
    return std::any_of(words.begin(), end, [](const std::string& word) { return word == "--help" || word == "-h"; });
}

std::string help_text(const Synopsis& synopsis) {
    std::string text = fmt::format("Usage: {} {}\n\n", synopsis.command, synopsis.usage) + paragraph(synopsis.summary);
    for (const FlagGroup& group : synopsis.groups) {
        text += fmt::format("\n{}\n", group.title);
        for (const Flag& flag : group.flags) {
            const std::string letter = flag.letter != 0 ? fmt::format("-{}, ", flag.letter) : "";
            const std::string lead = fmt::format("  {}--{} {}", letter, flag.name, flag.value);
            text += paragraph(flag.help, fmt::format("{:<26}  ", lead));
        }
    }
    if (!synopsis.examples.empty()) text += "\nExamples\n";
    for (const std::string& example : synopsis.examples) text += "  " + example + '\n';
    if (!synopsis.notes.empty()) text += '\n' + paragraph(synopsis.notes);
    return text;
}

int parse_count(const std::string& text, const std::string& flag, int largest) {
    int number = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
    if (error != std::errc() || end != text.data() + text.size() || number < 1 || number > largest) {
        throw Error(fmt::format("'{}' is not a whole number from 1 to {}", printable(text), largest), flag,
                    fmt::format("write e.g. {} 8", flag));
    }
    return number;
}

std::string suggestion(std::string_view typed, const std::vector<std::string>& candidates,
                       const std::string& otherwise) {
    const std::string near = did_you_mean(typed, candidates);
    return near.empty() ? otherwise : fmt::format("did you mean {}?", near);
}

}  // namespace headroom
