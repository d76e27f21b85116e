// SPDX-License-Identifier: Apache-2.0
#include "calibrate/options.hpp"

#include <fmt/format.h>

#include <algorithm>
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

std::vector<std::string> list_of(const std::string& text, const char* flag) {
    std::vector<std::string> items;
    for (std::size_t begin = 0; begin <= text.size();) {
        const std::size_t end = std::min(text.find(',', begin), text.size());
        if (end == begin) throw Error(fmt::format("'{}' has an empty item", text), flag, "write e.g. 128K,256K");
        items.push_back(text.substr(begin, end - begin));
        begin = end + 1;
    }
    return items;
}

int count_of(const std::string& text, const char* flag) {
    int value = 0;
    const char* end = text.data() + text.size();
    const auto [stop, error] = std::from_chars(text.data(), end, value);
    if (error != std::errc() || stop != end || value < 1 || value > 1000) {
        throw Error(fmt::format("'{}' is no number from 1 to 1000", text), flag, "write a whole number");
    }
    return value;
}

Flag run_text(std::string RunOptions::*member) {
    return {true, [member](CalibrateOptions& o, const std::string& v) { o.run.*member = v; }};
}

Flag run_list(std::vector<std::string> RunOptions::*member, const char* flag) {
    return {true, [member, flag](CalibrateOptions& o, const std::string& v) { o.run.*member = list_of(v, flag); }};
}

Flags run_flags() {
    return {
        {"--model", run_text(&RunOptions::model)},
        {"--cluster", run_text(&RunOptions::cluster)},
        {"--calibration", run_text(&RunOptions::calibration)},
        {"--gpus", run_text(&RunOptions::gpus)},
        {"--ulysses", run_text(&RunOptions::ulysses)},
        {"--ring", run_text(&RunOptions::ring)},
        {"--layers", run_text(&RunOptions::layers)},
        {"--compare", run_text(&RunOptions::compare)},
        {"--method", run_list(&RunOptions::methods, "--method")},
        {"--context", run_list(&RunOptions::contexts, "--context")},
        {"--heads-per-stage", run_list(&RunOptions::heads_per_stage, "--heads-per-stage")},
        {"--chunk-tokens", run_list(&RunOptions::chunk_tokens, "--chunk-tokens")},
        {"--set", {true, [](CalibrateOptions& o, const std::string& v) { o.run.sets.push_back(v); }}},
        {"--steps", {true, [](CalibrateOptions& o, const std::string& v) { o.run.steps = count_of(v, "--steps"); }}},
        {"--warm",
         {true, [](CalibrateOptions& o, const std::string& v) { o.run.warm_seconds = seconds_of(v, "--warm"); }}},
        {"--no-loss", {false, [](CalibrateOptions& o, const std::string&) { o.run.blocks_only = true; }}},
        {"--budget",
         {true, [](CalibrateOptions& o, const std::string& v) { o.selection.budget = seconds_of(v, "--budget"); }}},
        {"--dry-run", {false, [](CalibrateOptions& o, const std::string&) { o.dry_run = true; }}},
        {"--output", {true, [](CalibrateOptions& o, const std::string& v) { o.output = v; }}},
    };
}

/// "1,2,4"
std::vector<int> ranks_of(const std::string& text) {
    std::vector<int> ranks;
    for (std::size_t begin = 0; begin <= text.size();) {
        const std::size_t comma = std::min(text.find(',', begin), text.size());
        int value = 0;
        const auto [stop, error] = std::from_chars(text.data() + begin, text.data() + comma, value);
        if (error != std::errc() || stop != text.data() + comma || value < 1 || value > 64) {
            throw Error(fmt::format("'{}' is no list of rank counts", text), "--ranks",
                        "write numbers from 1 to 64, e.g. --ranks 2,4");
        }
        ranks.push_back(value);
        begin = comma + 1;
    }
    return ranks;
}

Flags check_flags() {
    return {
        {"--ranks", {true, [](CalibrateOptions& o, const std::string& v) { o.check.ranks = ranks_of(v); }}},
        {"--only", {true, [](CalibrateOptions& o, const std::string& v) { o.selection.only.push_back(v); }}},
        {"--skip", {true, [](CalibrateOptions& o, const std::string& v) { o.selection.skip.push_back(v); }}},
        {"--list", {false, [](CalibrateOptions& o, const std::string&) { o.list = true; }}},
        {"--on-host", {false, [](CalibrateOptions& o, const std::string&) { o.check.on_host = true; }}},
        {"--output", {true, [](CalibrateOptions& o, const std::string& v) { o.output = v; }}},
    };
}

Flags probe_flags() {
    return {
        {"--list", {false, [](CalibrateOptions& o, const std::string&) { o.list = true; }}},
        {"--dry-run", {false, [](CalibrateOptions& o, const std::string&) { o.dry_run = true; }}},
        {"--gpus", {true, [](CalibrateOptions& o, const std::string& v) { o.plan_gpus = count_of(v, "--gpus"); }}},
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
        {"--cluster", {true, [](CalibrateOptions& o, const std::string& v) { o.cluster_output = v; }}},
        {"--output", {true, [](CalibrateOptions& o, const std::string& v) { o.output = v; }}},
    };
}

double share_of(const std::string& text, const char* flag) {
    double value = 0;
    const char* end = text.data() + text.size();
    const auto [stop, error] = std::from_chars(text.data(), end, value);
    if (error != std::errc() || stop != end || !(value > 0) || value >= 1) {
        throw Error(fmt::format("'{}' is no share below 1", text), flag, "write e.g. --tolerance 0.02");
    }
    return value;
}

Flags compare_flags() {
    return {{"--tolerance",
             {true, [](CalibrateOptions& o, const std::string& v) { o.tolerance = share_of(v, "--tolerance"); }}}};
}

void parse_flags(CalibrateOptions& options, const Flags& flags, bool positionals, const std::string& command,
                 const std::vector<std::string>& words) {
    for (std::size_t i = 0; i < words.size(); ++i) {
        std::string word = words[i];
        if (word == "-o") word = "--output";
        if (word == "-h" || word == "--help") {
            options.help_of = options.action;
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
            throw Error(fmt::format("unknown flag {}", word), command, command + " --help lists the flags");
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
        throw Error("no action is given", "headroom calibrate",
                    "choose probes, fit, compare, run or check; --help explains them");
    }
    const std::string& action = words.front();
    const std::vector<std::string> rest(words.begin() + 1, words.end());
    if (action == "--help" || action == "-h" || action == "help") {
        if (action == "help" && !rest.empty()) return parse_calibrate_options({rest.front(), "--help"});
        return options;
    }
    if (action == "--version") {
        options.action = CalibrateAction::version;
    } else if (action == "probes") {
        options.action = CalibrateAction::probes;
        parse_flags(options, probe_flags(), false, "headroom calibrate probes", rest);
        if (!options.resume.empty() && !options.output.empty()) {
            throw Error("--resume goes on in its own file", "--output", "leave --output out");
        }
        if (options.plan_gpus > 0 && needs_device(options)) {
            throw Error("the GPUs that are probed are those of the machine", "--gpus",
                        "use it with --list or --dry-run, or set CUDA_VISIBLE_DEVICES");
        }
    } else if (action == "fit") {
        options.action = CalibrateAction::fit;
        parse_flags(options, fit_flags(), true, "headroom calibrate fit", rest);
        if (options.action == CalibrateAction::fit && options.inputs.empty()) {
            throw Error("no probe file is named", "headroom calibrate fit",
                        "name what headroom calibrate probes wrote");
        }
    } else if (action == "compare") {
        options.action = CalibrateAction::compare;
        parse_flags(options, compare_flags(), true, "headroom calibrate compare", rest);
        if (options.action == CalibrateAction::compare && options.inputs.size() != 2) {
            throw Error(fmt::format("two calibrations are compared, not {}", options.inputs.size()),
                        "headroom calibrate compare", "name two files or built-in calibrations");
        }
    } else if (action == "run") {
        options.action = CalibrateAction::run;
        parse_flags(options, run_flags(), false, "headroom calibrate run", rest);
        const bool runs = options.action == CalibrateAction::run && options.run.compare.empty();
        if (runs && options.run.methods.empty()) {
            throw Error("no method is given", "--method", "e.g. --method ulysses,upipe");
        }
        if (runs && options.run.contexts.empty()) {
            throw Error("no context is given", "--context", "e.g. --context 128K,256K");
        }
    } else if (action == "check") {
        options.action = CalibrateAction::check;
        parse_flags(options, check_flags(), false, "headroom calibrate check", rest);
    } else {
        throw Error(fmt::format("unknown action '{}'", action), "headroom calibrate",
                    "choose probes, fit, compare, run or check; --help explains them");
    }
    return options;
}

bool needs_device(const CalibrateOptions& options) {
    switch (options.action) {
        case CalibrateAction::probes:
            return !options.list && !options.dry_run;
        case CalibrateAction::run:
            return !options.dry_run && options.run.compare.empty();
        case CalibrateAction::check:
            return !options.list && !options.check.on_host;
        case CalibrateAction::help:
        case CalibrateAction::version:
        case CalibrateAction::fit:
        case CalibrateAction::compare:
            break;
    }
    return false;
}

}  // namespace headroom
