// SPDX-License-Identifier: Apache-2.0
// headroom show: what is built in, and what a config file says.
#include <fmt/core.h>

#include "configs/load.hpp"
#include "planner/commands/catalogue.hpp"
#include "planner/commands/commands.hpp"
#include "planner/commands/output.hpp"

namespace headroom {

namespace {

struct Topic {
    const char* name;
    bool named;  ///< takes a NAME
    Document (*show)(const std::string& name);
};

constexpr std::array topics{
    Topic{"models", false, [](const std::string&) { return show_models(); }},
    Topic{"clusters", false, [](const std::string&) { return show_clusters(); }},
    Topic{"calibrations", false, [](const std::string&) { return show_calibrations(); }},
    Topic{"recipes", false, [](const std::string&) { return show_recipes(); }},
    Topic{"methods", false, [](const std::string&) { return show_methods(); }},
    Topic{"model", true, show_model},
    Topic{"cluster", true, show_cluster},
    Topic{"calibration", true, show_calibration},
    Topic{"recipe", true, show_recipe},
};

Synopsis synopsis() {
    return {
        "headroom show",
        "LIST, or headroom show THING NAME",
        "Lists what is built in (LIST is models, clusters, calibrations, recipes or methods), or prints one THING: a "
        "model, "
        "cluster, calibration or published recipe in full. A model may be a config.json or its directory, a cluster "
        "or calibration a YAML file.",
        {output_flags()},
        {"headroom show models", "headroom show model ./config.json --format json", "headroom show recipe upipe",
         "headroom show calibration h100-sxm-80gb --format csv"},
        "show model counts the parameters of a model that cannot be planned too, and says what is not modelled. "
        "show calibration gives the reference of each constant in JSON and CSV.",
        2};
}

const Topic& find_topic(const Words& words) {
    std::vector<std::string> names;
    for (const Topic& topic : topics) names.emplace_back(topic.name);
    const std::string all =
        "show models, clusters, calibrations, recipes, methods, model NAME, cluster NAME, calibration NAME or recipe "
        "METHOD";
    if (words.empty()) throw Error("nothing to show is named", "headroom show", all);
    for (const Topic& topic : topics) {
        if (words[0] != topic.name) continue;
        if (topic.named && words.size() < 2) {
            throw Error(fmt::format("which {}?", topic.name), "headroom show",
                        fmt::format("add a name; headroom show {}s lists them", topic.name));
        }
        if (!topic.named && words.size() > 1) {
            throw Error(fmt::format("'{}' takes no name", topic.name), "headroom show", all);
        }
        return topic;
    }
    throw Error(fmt::format("cannot show '{}'", words[0]), "headroom show", suggestion(words[0], names, all));
}

}  // namespace

ExitCode show_command(const Words& words) {
    if (wants_help(words)) {
        write({}, help_text(synopsis()));
        return ExitCode::ok;
    }
    const Arguments arguments(synopsis(), words);
    const Output output = read_output(arguments);
    const Words& named = arguments.positionals();
    const Topic& topic = find_topic(named);
    const Document shown = topic.show(topic.named ? named[1] : std::string());
    switch (output.format) {
        case Format::text:
            write(output, shown.text());
            break;
        case Format::json:
            write(output, shown.json());
            break;
        case Format::csv:
            write(output, shown.csv());
            break;
    }
    return ExitCode::ok;
}

}  // namespace headroom
