// SPDX-License-Identifier: Apache-2.0
#include "configs/launch.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "configs/foreign.hpp"
#include "configs/load.hpp"
#include "configs/recipe_text.hpp"

namespace headroom {
namespace {

void refuse(LaunchTarget target, const Recipe& recipe) {
    const bool zero =
        recipe.implementation == Implementation::alst || recipe.implementation == Implementation::megatron_deepspeed;
    if (target == LaunchTarget::deepspeed && zero) return;
    const LaunchTarget own = launch_target(recipe.implementation);
    if (target == own) return;
    throw Error(fmt::format("{} does not run {} as {} does", to_string(target), to_string(recipe.method),
                            to_string(recipe.implementation)),
                "--target", fmt::format("use --target {}, or another --implementation and --method", to_string(own)));
}

/// A comment must stay one line, whatever a model is called.
std::string one_line(std::string text) {
    std::replace_if(
        text.begin(), text.end(), [](char c) { return static_cast<unsigned char>(c) < 0x20; }, '?');
    return text;
}

/// Comments behind the first line of a script, which is where people look.
void explain_in_script(Launch& launch) {
    LaunchFile& first = launch.files.front();
    if (!first.text.starts_with("#!")) return;
    std::string comments;
    for (const std::string& what : launch.to_fill_in) comments += "# To fill in: " + one_line(what) + "\n";
    for (const std::string& what : launch.not_expressed) comments += "# Not expressed: " + one_line(what) + "\n";
    first.text.insert(first.text.find('\n') + 1, comments);
}

/// Behind the first line of a script, above everything else; JSON has no comments.
void note_machine(Launch& launch, const MachineNames& machine) {
    const std::string comment = machine_comment(machine);
    for (LaunchFile& file : launch.files) {
        if (file.name.ends_with(".json")) continue;
        file.text.insert(file.text.starts_with("#!") ? file.text.find('\n') + 1 : 0, comment);
    }
}

/// Everything that is said, so that nothing is left to defaults.
Settings settings_of(const Recipe& recipe) {
    Settings settings;
    for (const RecipeLine& line : describe(recipe)) set(settings, line.key + "=" + line.value);
    return settings;
}

/// Keys that DeepSpeed's JSON knows; the rest of a recipe belongs to the code around it.
void keep_deepspeed_keys(Settings& all, const Settings& read) {
    all.batch = read.batch;
    all.ulysses = read.ulysses;
    all.sharding_strategy = read.sharding_strategy;
    all.offload_optimizer = read.offload_optimizer;
    all.offload_parameters = read.offload_parameters;
    all.precision_compute = read.precision_compute;
    all.precision_reduction = read.precision_reduction;
}

/// What the files say when they are read back, completed as any recipe is.
Recipe read_back(LaunchTarget target, const Launch& launch, const Recipe& recipe, const Transformer& model,
                 const Cluster& cluster) {
    std::map<std::string, std::string> texts;
    for (const LaunchFile& file : launch.files) texts[file.name] = file.text;
    const RecipeFile file = read_recipe_text(launch.files.front().text, launch.files.front().name,
                                             [&](const std::string& name) { return texts.at(name); });
    Settings said = file.settings;
    if (target == LaunchTarget::deepspeed) {
        said = settings_of(recipe);
        keep_deepspeed_keys(said, file.settings);
    }
    return resolve(said, published_recipe(said.method.value()), model, cluster);
}

std::vector<std::string> differences(const Recipe& asked, const Recipe& read) {
    std::map<std::string, std::string> done;
    for (const RecipeLine& line : describe(read)) done[line.key] = line.value;
    std::vector<std::string> list;
    for (const RecipeLine& line : describe(asked)) {
        const auto found = done.find(line.key);
        if (found != done.end() && found->second == line.value) continue;
        list.push_back(fmt::format(
            "{}={}: {}", line.key, line.value,
            found == done.end() ? "the code has no such setting" : fmt::format("the code does {}", found->second)));
    }
    return list;
}

}  // namespace

std::string in_quotes(const std::string& text) {
    std::string result = "\"";
    for (const char c : text) {
        if (c == '"' || c == '\\') result += '\\';
        result += static_cast<unsigned char>(c) < 0x20 ? '?' : c;
    }
    return result + "\"";
}

LaunchTarget launch_target(Implementation implementation) {
    switch (implementation) {
        case Implementation::untied_ulysses:
            return LaunchTarget::untied_ulysses;
        case Implementation::megatron_deepspeed:
            return LaunchTarget::megatron_deepspeed;
        case Implementation::alst:
            return LaunchTarget::alst;
        case Implementation::torchtitan:
            return LaunchTarget::torchtitan;
        case Implementation::lean:
            break;
    }
    throw Error("the implementation lean is the bare algorithm, which no code ships", "implementation",
                "name the code that shall run, e.g. --implementation untied-ulysses");
}

Launch launch_files(LaunchTarget target, const Recipe& recipe, const Transformer& model, const Cluster& cluster,
                    const MachineNames& machine) {
    refuse(target, recipe);
    static constexpr std::array writers{torchtitan_files, megatron_files, deepspeed_files, alst_files,
                                        untied_ulysses_files};
    Launch launch = writers[static_cast<std::size_t>(target)](recipe, model, cluster);
    // Told from the files themselves, so that nothing is promised that they do not say.
    launch.not_expressed = differences(recipe, read_back(target, launch, recipe, model, cluster));
    explain_in_script(launch);
    note_machine(launch, machine);
    return launch;
}

}  // namespace headroom
