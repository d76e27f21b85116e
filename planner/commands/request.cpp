// SPDX-License-Identifier: Apache-2.0
#include "planner/commands/request.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <filesystem>
#include <iostream>
#include <iterator>

#include "configs/load.hpp"
#include "models/error.hpp"
#include "planner/commands/time_basis.hpp"
#include "reports/table.hpp"

namespace headroom {

namespace {

/// A recipe key that has a flag of its own.
struct KeyFlag {
    Flag flag;
    const char* key;
    bool (*said)(const Settings&);
    bool (*same)(const Settings&, const Settings&);
};

template <auto Member>
constexpr KeyFlag key_flag(const char* name, const char* key, const char* value, const char* help) {
    return {{name, value, help},
            key,
            [](const Settings& settings) { return (settings.*Member).has_value(); },
            [](const Settings& a, const Settings& b) { return a.*Member == b.*Member; }};
}

const std::array key_flags{
    key_flag<&Settings::method>("method", "method", "METHOD", "native, ring, ulysses, usp, fpdt or upipe"),
    key_flag<&Settings::context>("context", "context", "TOKENS",
                                 "length of one sequence over all GPUs: 128K, 1M, 1_048_576"),
    key_flag<&Settings::ulysses>("ulysses", "ulysses", "DEGREE", "GPUs that exchange heads (all-to-all)"),
    key_flag<&Settings::ring>("ring", "ring", "DEGREE", "GPUs that pass keys and values around"),
    key_flag<&Settings::heads_per_stage>("heads-per-stage", "heads_per_stage", "HEADS",
                                         "upipe: heads of one stage (U)"),
    key_flag<&Settings::chunk_tokens>("chunk-tokens", "chunk_tokens", "TOKENS", "fpdt: global tokens of one chunk"),
    key_flag<&Settings::batch>("batch", "batch", "SEQUENCES", "sequences per context-parallel group and step"),
    key_flag<&Settings::implementation>("implementation", "implementation", "NAME",
                                        "whose code runs: untied-ulysses, megatron-deepspeed, alst, torchtitan, lean"),
    key_flag<&Settings::attention_kernel>("attention-kernel", "attention_kernel", "NAME", "fa2, fa3 or cudnn"),
};

std::string key_of(const std::string& assignment) { return assignment.substr(0, assignment.find('=')); }

/// Rethrows with the place as the user typed it.
template <class Work>
void at(const std::string& place, Work work) {
    try {
        work();
    } catch (const Error& error) {
        throw Error(error.what(), place, error.hint(), error.exit_code());
    }
}

bool contains(const std::vector<std::string>& names, const char* name) {
    return std::find(names.begin(), names.end(), name) != names.end();
}

/// A name or path that cannot be used is shown as it was typed; what is wrong inside a file keeps its line.
template <class Load>
auto from_flag(const std::string& flag, const std::string& typed, Load load) {
    try {
        return load(typed);
    } catch (const Error& error) {
        const bool whole = error.where().empty() || error.where() == typed;
        throw Error(error.what(), whole ? flag + " " + typed : error.where(), error.hint(), error.exit_code());
    }
}

Settings read_flags(const Arguments& arguments, const std::vector<std::string>& skipped,
                    std::map<std::string, std::string>& origins) {
    Settings settings;
    for (const KeyFlag& known : key_flags) {
        const auto value = arguments.get(known.flag.name);
        if (!value || contains(skipped, known.flag.name)) continue;
        const std::string flag = std::string("--") + known.flag.name;
        at(flag, [&] { set(settings, std::string(known.key) + "=" + *value); });
        origins[known.key] = flag;
    }
    return settings;
}

Settings read_assignments(const Arguments& arguments, const Settings& flags,
                          std::map<std::string, std::string>& origins) {
    Settings settings;
    std::map<std::string, std::string> assigned;
    for (const std::string& assignment : arguments.all("set")) {
        const std::string place = "--set " + printable(assignment);
        const std::string key = key_of(assignment);
        at(place, [&] { set(settings, assignment); });
        if (const auto [first, fresh] = assigned.emplace(key, assignment); !fresh && first->second != assignment) {
            throw Error(fmt::format("{} is set twice, to different values", key), place,
                        fmt::format("keep one of them (the other: --set {})", first->second));
        }
        const auto* known = std::find_if(key_flags.begin(), key_flags.end(), [&](auto& k) { return key == k.key; });
        const bool flag_too = known != key_flags.end() && known->said(flags);
        if (!flag_too) origins[key] = place;
        if (flag_too && !known->same(flags, settings)) {
            throw Error(fmt::format("--{} and --set give {} different values", known->flag.name, key), place,
                        "keep one of them");
        }
    }
    return settings;
}

/// A command line may be read twice, standard input only once.
const std::string& standard_input() {
    static const std::string text{std::istreambuf_iterator<char>(std::cin), {}};
    return text;
}

/// A file, or standard input for `-`.
RecipeFile load_named_recipe(const std::string& path) {
    if (path != "-") return load_recipe_file(path);
    if (standard_input().find_first_not_of(" \t\r\n") == std::string::npos) {
        throw Error("standard input holds no recipe", "-", "pipe one in, or name a file");
    }
    return read_recipe_text(standard_input(), "standard input", read_text_file);
}

void use_nodes(Cluster& cluster, const std::string& text) {
    constexpr int most_nodes = 1 << 17;
    cluster.nodes = parse_count(text, "--nodes", most_nodes);
}

/// Fewer GPUs than the nodes have: the same number of each node.
void use_gpus(Cluster& cluster, const std::string& text, bool nodes_given) {
    constexpr int most_gpus = 1 << 20;
    const int gpus = parse_count(text, "--gpus", most_gpus);
    const int node = cluster.gpus_per_node;
    const std::string hint =
        fmt::format("a node of {} has {} GPUs: use fewer, or a multiple of {}", cluster.name, node, node);
    if (nodes_given) {
        if (gpus % cluster.nodes != 0 || gpus / cluster.nodes > node) {
            throw Error(fmt::format("{} GPUs cannot be {} equal nodes of at most {}", gpus, cluster.nodes, node),
                        "--gpus", fmt::format("leave out --nodes or --gpus; {}", hint));
        }
        cluster.gpus_per_node = gpus / cluster.nodes;
    } else if (gpus < node) {
        cluster.nodes = 1;
        cluster.gpus_per_node = gpus;
    } else if (gpus % node == 0) {
        cluster.nodes = gpus / node;
    } else {
        throw Error(fmt::format("{} GPUs are not whole nodes", gpus), "--gpus", hint);
    }
}

void note(const std::string& what) { fmt::print(stderr, "headroom: note: {}\n", printable(what)); }

/// The model that is planned when none is named, as the codes call it.
bool is_default_model(std::string name) {
    std::transform(name.begin(), name.end(), name.begin(), [](unsigned char c) { return std::tolower(c); });
    const bool llama3 =
        name == "8b" || name.find("llama3") != std::string::npos || name.find("llama-3") != std::string::npos;
    return llama3 && name.find("8b") != std::string::npos;
}

/// A file's name stays right in another directory.
std::string lasting(const std::string& name, const std::vector<std::string>& builtin) {
    std::error_code error;
    const bool known = std::find(builtin.begin(), builtin.end(), name) != builtin.end();
    if (known || !std::filesystem::exists(name, error)) return name;
    return std::filesystem::absolute(name, error).string();
}

void load_machine(Request& request) {
    MachineNames& machine = request.machine;
    machine.model = machine.model.value_or("llama3-8b");
    machine.cluster = machine.cluster.value_or("h100-sxm-80gb");
    request.model = from_flag("--model", *machine.model, load_model);
    request.cluster = from_flag("--cluster", *machine.cluster, load_cluster);
    resize(request.cluster, machine.nodes, machine.gpus);
    machine.model = lasting(*machine.model, builtin_models());
    machine.cluster = lasting(*machine.cluster, builtin_clusters());
}

/// The file that --recipe names, with its notes.
RecipeFile read_recipe_file(const std::string& path, Request& request) {
    RecipeFile file = from_flag("--recipe", path, load_named_recipe);
    for (const std::string& left : file.notes) note(left);
    const std::string source = path == "-" ? "standard input" : path;
    for (const KeyFlag& known : key_flags) {
        if (known.said(file.settings)) request.origins.emplace(known.key, fmt::format("{}: {}", source, known.key));
    }
    return file;
}

}  // namespace

MachineNames machine_of(MachineNames flags, const RecipeFile& file, const std::string& path) {
    MachineNames taken = file.machine;
    if (flags.model) taken.model.reset();
    if (flags.cluster) taken.cluster.reset();
    if (flags.nodes || flags.gpus) {
        taken.nodes.reset();
        taken.gpus.reset();
    }
    const std::string words = flags_of(taken);
    if (!words.empty()) note(fmt::format("{}: written for {}", path, words));
    if (!flags.model && !taken.model && file.model && !is_default_model(file.model->name)) {
        throw Error(fmt::format("the file is for the model {}, and nothing says which that is here", file.model->name),
                    file.model->where, "add --model; headroom show models lists those that are built in");
    }
    if (taken.model) flags.model = taken.model;
    if (taken.cluster) flags.cluster = taken.cluster;
    if (taken.nodes) flags.nodes = taken.nodes;
    if (taken.gpus) flags.gpus = taken.gpus;
    return flags;
}

void add_guess(Settings& said, const std::optional<std::string>& methods, const RecipeFile& file,
               const std::string& path) {
    const Settings& guess = file.guess;
    if (!guess.method || (said.method && said.method != guess.method)) return;
    if (methods && *methods != to_string(*guess.method)) return;
    if (said.implementation && said.implementation != guess.implementation) return;
    if (said.method && said.implementation) return;
    said = layer(said, guess);
    note(fmt::format(
        "{} names no method and no code: planned as {} in the {} code, with its settings where the file has none; "
        "--method and --implementation say otherwise",
        path, to_string(*said.method), to_string(*said.implementation)));
}

FlagGroup machine_flags() {
    return {"Model and machine",
            {{"model", "NAME", "built-in name, Hugging Face config.json, or a directory with one (default llama3-8b)"},
             {"cluster", "NAME", "built-in name or YAML file (default h100-sxm-80gb)"},
             {"nodes", "N", "number of nodes (default 1)"},
             {"gpus", "N", "GPUs in all: whole nodes, or a part of one"}}};
}

FlagGroup recipe_flags(const std::vector<std::string>& skipped) {
    FlagGroup group{"Recipe; what is not given is the method's published recipe", {}};
    for (const KeyFlag& known : key_flags) {
        if (!contains(skipped, known.flag.name)) group.flags.push_back(known.flag);
    }
    group.flags.push_back({"recipe", "FILE",
                           "recipe keys in YAML, torchtitan TOML, DeepSpeed JSON, ArcticTraining YAML or a launch "
                           "script, with its model and machine when headroom launch wrote it, or what plan --format "
                           "json wrote; - is standard input; flags and --set win over it"});
    group.flags.push_back(
        {"set", "KEY=VALUE", "any recipe key, e.g. offload.block_inputs=none; may be repeated", 0, true});
    return group;
}

void resize(Cluster& cluster, const std::optional<std::string>& nodes, const std::optional<std::string>& gpus) {
    if (nodes) use_nodes(cluster, *nodes);
    if (gpus) use_gpus(cluster, *gpus, nodes.has_value());
}

Request read_request(const Arguments& arguments, const std::vector<std::string>& skipped) {
    Request request;
    const Settings flags = read_flags(arguments, skipped, request.origins);
    const Settings assignments =
        contains(skipped, "set") ? Settings{} : read_assignments(arguments, flags, request.origins);
    request.said = layer(flags, assignments);
    request.machine = {arguments.get("model"), arguments.get("cluster"), arguments.get("nodes"), arguments.get("gpus")};
    if (const auto path = arguments.get("recipe")) {
        const RecipeFile file = read_recipe_file(*path, request);
        request.said = layer(request.said, file.settings);
        add_guess(request.said, arguments.get("method"), file, *path);
        request.machine = machine_of(request.machine, file, *path);
    }
    load_machine(request);
    if (!request.said.attention_kernel) {
        const TimeBasis basis = read_time_basis(arguments, request.cluster);
        request.kernel_instead = kernel_instead(basis);
        request.said.attention_kernel = request.kernel_instead;
        if (request.kernel_instead) note(kernel_remark(basis));
    }
    return request;
}

bool said_by_set(const Request& request, const std::string& key) {
    const auto origin = request.origins.find(key);
    return origin != request.origins.end() && origin->second.starts_with("--set");
}

void pointing_to_origin(const Request& request, const std::function<void()>& work) {
    try {
        work();
    } catch (const Error& error) {
        std::string where = error.where();
        const auto* known = std::find_if(key_flags.begin(), key_flags.end(), [&](auto& k) { return where == k.key; });
        if (const auto origin = request.origins.find(where); origin != request.origins.end()) {
            where = origin->second;
        } else if (known != key_flags.end()) {
            where = std::string("--") + known->flag.name;
        }
        throw Error(error.what(), where, error.hint(), error.exit_code());
    }
}

Recipe resolve(const Request& request, const Settings& said) {
    Recipe recipe;
    pointing_to_origin(request, [&] {
        recipe = resolve(said, published_recipe(said.method.value()), request.model, request.cluster);
    });
    return recipe;
}

}  // namespace headroom
