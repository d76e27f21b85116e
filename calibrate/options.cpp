// SPDX-License-Identifier: Apache-2.0
#include "calibrate/options.hpp"

#include <fmt/format.h>

#include <charconv>
#include <functional>
#include <map>
#include <optional>

#include "models/error.hpp"

namespace headroom {
namespace {

struct Flag {
    bool takes_value;
    std::function<void(CalibrateOptions&, const std::string&)> apply;
};
using Flags = std::map<std::string, Flag>;

double seconds_of(const std::string& text, const char* flag) {
    double value = 0;
    const char* end = text.data() + text.size();
    const auto [stop, error] = std::from_chars(text.data(), end, value);
    if (error != std::errc() || stop != end || !(value > 0) || value > 1e6) {
        throw Error(fmt::format("'{}' is no number of seconds", text), flag, "write e.g. --budget 120");
    }
    return value;
}

Flags probe_flags() {
    return {
        {"--list", {false, [](CalibrateOptions& o, const std::string&) { o.list = true; }}},
        {"--dry-run", {false, [](CalibrateOptions& o, const std::string&) { o.dry_run = true; }}},
        {"--only", {true, [](CalibrateOptions& o, const std::string& v) { o.selection.only.push_back(v); }}},
        {"--skip", {true, [](CalibrateOptions& o, const std::string& v) { o.selection.skip.push_back(v); }}},
        {"--budget",
         {true, [](CalibrateOptions& o, const std::string& v) { o.selection.budget = seconds_of(v, "--budget"); }}},
        {"--resume", {true, [](CalibrateOptions& o, const std::string& v) { o.resume = v; }}},
        {"--output", {true, [](CalibrateOptions& o, const std::string& v) { o.output = v; }}},
    };
}

Flags fit_flags() {
    return {
        {"--base", {true, [](CalibrateOptions& o, const std::string& v) { o.base = v; }}},
        {"--name", {true, [](CalibrateOptions& o, const std::string& v) { o.name = v; }}},
        {"--output", {true, [](CalibrateOptions& o, const std::string& v) { o.output = v; }}},
    };
}

void parse_flags(CalibrateOptions& options, const Flags& flags, bool positionals, const std::string& command,
                 const std::vector<std::string>& words) {
    for (std::size_t i = 0; i < words.size(); ++i) {
        std::string word = words[i];
        if (word == "-o") word = "--output";
        if (word == "-h" || word == "--help") {
            options.action = CalibrateAction::help;
            return;
        }
        if (!word.starts_with('-')) {
            if (!positionals) throw Error(fmt::format("unexpected argument '{}'", word), command, "leave it out");
            options.inputs.push_back(word);
            continue;
        }
        std::optional<std::string> value;
        if (const std::size_t equals = word.find('='); equals != std::string::npos) {
            value = word.substr(equals + 1);
            word.resize(equals);
        }
        const auto flag = flags.find(word);
        if (flag == flags.end()) {
            throw Error(fmt::format("unknown flag {}", word), command, "headroom calibrate --help lists the flags");
        }
        if (flag->second.takes_value && !value) {
            if (i + 1 == words.size()) throw Error(fmt::format("{} needs a value", word), command);
            value = words[++i];
        } else if (!flag->second.takes_value && value) {
            throw Error(fmt::format("{} takes no value", word), command, "leave it out");
        }
        if (value && value->empty()) throw Error(fmt::format("the value of {} is empty", word), command);
        flag->second.apply(options, value.value_or(""));
    }
}

}  // namespace

CalibrateOptions parse_calibrate_options(const std::vector<std::string>& words) {
    CalibrateOptions options;
    if (words.empty()) {
        throw Error("no action is given", "headroom calibrate", "choose probes or fit; --help explains them");
    }
    const std::string& action = words.front();
    const std::vector<std::string> rest(words.begin() + 1, words.end());
    if (action == "--help" || action == "-h" || action == "help") return options;
    if (action == "--version") {
        options.action = CalibrateAction::version;
    } else if (action == "probes") {
        options.action = CalibrateAction::probes;
        parse_flags(options, probe_flags(), false, "headroom calibrate probes", rest);
        if (!options.resume.empty() && !options.output.empty()) {
            throw Error("--resume goes on in its own file", "--output", "leave --output out");
        }
    } else if (action == "fit") {
        options.action = CalibrateAction::fit;
        parse_flags(options, fit_flags(), true, "headroom calibrate fit", rest);
        if (options.action == CalibrateAction::fit && options.inputs.empty()) {
            throw Error("no probe file is named", "headroom calibrate fit",
                        "name what headroom calibrate probes wrote");
        }
    } else {
        throw Error(fmt::format("unknown action '{}'", action), "headroom calibrate",
                    "choose probes or fit; --help explains them");
    }
    return options;
}

std::string calibrate_help() {
    return "Usage: headroom calibrate probes [flags]\n"
           "       headroom calibrate fit FILE... [flags]\n\n"
           "Measures this machine, one JSON line for each finished probe, and fits a calibration file to such "
           "lines.\n\n"
           "probes\n"
           "  --list            names of the probes, in the order they run; no GPU is needed\n"
           "  --dry-run         the same with the seconds and bytes they take; no GPU is needed\n"
           "  --only GLOB       only these; may be repeated\n"
           "  --skip GLOB       not these; may be repeated\n"
           "  --budget SECONDS  leave out what does not fit in this time\n"
           "  --resume FILE     go on with a session that was ended\n"
           "  -o, --output FILE a new file for the records; otherwise they go to standard output\n\n"
           "fit\n"
           "  --base NAME       calibration that says what was not probed (a built-in one)\n"
           "  --name NAME       cluster the calibration is for\n"
           "  -o, --output FILE calibration file; otherwise standard output\n\n"
           "Examples\n"
           "  headroom calibrate probes --dry-run\n"
           "  headroom calibrate probes -o node7.jsonl\n"
           "  headroom calibrate fit node7.jsonl --base h200 -o node7.yaml\n";
}

bool needs_device(const CalibrateOptions& options) {
    switch (options.action) {
        case CalibrateAction::probes:
            return !options.list && !options.dry_run;
        case CalibrateAction::run:
        case CalibrateAction::check:
            return true;
        case CalibrateAction::help:
        case CalibrateAction::version:
        case CalibrateAction::fit:
            break;
    }
    return false;
}

}  // namespace headroom
