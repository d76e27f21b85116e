// SPDX-License-Identifier: Apache-2.0
#include "planner/commands/grid_flags.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <map>

#include "configs/load.hpp"
#include "configs/reader.hpp"
#include "configs/recipe_text.hpp"
#include "models/error.hpp"
#include "planner/commands/request.hpp"
#include "planner/commands/search_flags.hpp"
#include "reports/table.hpp"

namespace headroom {

namespace {

constexpr std::int64_t most_rows = 1'000'000'000;
constexpr std::array machine_keys{"model", "cluster", "nodes", "gpus"};

struct Listed {
    std::vector<std::string> values;
    std::string where;
};
using Lists = std::map<std::string, Listed>;  ///< by recipe key, or model, cluster, nodes, gpus

bool counts_tokens(const std::string& key) { return key == "context" || key == "chunk_tokens"; }

void add(Lists& lists, const std::string& key, const std::vector<std::string>& items, const std::string& where) {
    Listed listed{{}, where};
    for (const std::string& item : items) {
        const std::vector<std::string> values =
            counts_tokens(key) ? expand_range(item, where) : std::vector<std::string>{item};
        for (const std::string& value : values) {
            if (std::find(listed.values.begin(), listed.values.end(), value) != listed.values.end()) {
                throw Error(fmt::format("{} has {} twice", key, printable(value)), where, "name each value once");
            }
            listed.values.push_back(value);
        }
    }
    lists.emplace(key, std::move(listed));  // what was said first wins
}

std::string flag_of(std::string key) {
    std::replace(key.begin(), key.end(), '_', '-');
    return key;
}

void read_flags(const Arguments& arguments, Lists& lists) {
    std::vector<std::string> keys{machine_keys.begin(), machine_keys.end()};
    for (const std::string& key : recipe_keys()) keys.push_back(key);
    for (const std::string& key : keys) {
        const std::string flag = flag_of(key);
        if (const auto list = arguments.get(flag)) add(lists, key, split_list(*list, "--" + flag), "--" + flag);
    }
    for (const std::string& assignment : arguments.all("set")) {
        const std::string place = "--set " + printable(assignment);
        const std::size_t equals = assignment.find('=');
        const std::string key = assignment.substr(0, equals);
        if (equals == std::string::npos) throw Error("a setting needs a value", place, "write --set key=value");
        if (lists.contains(key)) throw Error(key + " is said twice", place, "keep one of them");
        add(lists, key, split_list(assignment.substr(equals + 1), place), place);
    }
}

void read_file_values(const Value& map, Lists& lists) {
    for (const Value& item : map.items) {
        if (item.is_map()) {
            read_file_values(item, lists);
            continue;
        }
        std::vector<std::string> items;
        if (item.is_list()) {
            for (const Value& value : item.items) items.push_back(scalar(value, "a value"));
        } else {
            items.push_back(scalar(item, "a value or a list of values"));
        }
        if (items.empty()) throw Error(item.key + " lists nothing", item.where(), "name at least one value");
        find(map, item.name);  // throws when the key stands twice
        add(lists, item.key, items, item.where());
    }
}

void read_file(const std::string& path, Lists& lists) {
    const Value root = parse_yaml(read_text_file(path), path);
    if (!root.is_map())
        throw Error("a grid must be a map of keys", root.where(), "begin with e.g. 'context: [1M, 2M]'");
    read_file_values(root, lists);
}

std::optional<std::string> only(const Lists& lists, const std::string& key) {
    const auto found = lists.find(key);
    return found == lists.end() ? std::nullopt : std::optional(found->second.values.front());
}

/// What the lists leave open: settings, and the machine that the file was written for.
void read_recipe_file(const std::string& path, Lists& lists, Settings& fixed) {
    const RecipeFile file = load_recipe_file(path);
    fixed = file.settings;
    if (lists.find("implementation") == lists.end()) {
        const auto found = lists.find("method");
        const bool one = found == lists.end() || found->second.values.size() == 1;
        add_guess(fixed, one ? only(lists, "method") : "several", file, path);
    }
    const MachineNames said{only(lists, "model"), only(lists, "cluster"), only(lists, "nodes"), only(lists, "gpus")};
    const MachineNames machine = machine_of(said, file, path);
    const auto fill = [&](const char* key, const std::optional<std::string>& value) {
        if (value) add(lists, key, {*value}, path);
    };
    fill("model", machine.model);
    fill("cluster", machine.cluster);
    fill("nodes", machine.nodes);
    fill("gpus", machine.gpus);
}

template <class Work>
void at(const std::string& where, Work work) {
    try {
        work();
    } catch (const Error& error) {
        throw Error(error.what(), where, error.hint(), error.exit_code());
    }
}

Listed taken(Lists& lists, const std::string& key, const std::string& otherwise) {
    const auto found = lists.find(key);
    if (found == lists.end()) return otherwise.empty() ? Listed{} : Listed{{otherwise}, "--" + key};
    Listed listed = found->second;
    lists.erase(found);
    return listed;
}

void read_clusters(Lists& lists, Grid& grid) {
    const Listed names = taken(lists, "cluster", "h100-sxm-80gb");
    const Listed nodes = taken(lists, "nodes", "");
    const Listed gpus = taken(lists, "gpus", "");
    using Size = std::optional<std::string>;
    const auto sizes = [](const Listed& listed) {
        std::vector<Size> list(listed.values.begin(), listed.values.end());
        return list.empty() ? std::vector<Size>{std::nullopt} : list;
    };
    for (const std::string& name : names.values) {
        Cluster cluster;
        at(names.where + " " + printable(name), [&] { cluster = load_cluster(name); });
        for (const Size& node_count : sizes(nodes)) {
            for (const Size& gpu_count : sizes(gpus)) {
                Cluster sized = cluster;
                resize(sized, node_count, gpu_count);
                grid.clusters.push_back(sized);
            }
        }
    }
}

void read_axes(Lists& lists, Grid& grid) {
    for (const std::string& key : recipe_keys()) {
        const Listed listed = taken(lists, key, "");
        if (listed.values.empty()) continue;
        GridAxis axis{key, {}};
        for (const std::string& value : listed.values) {
            Settings settings;
            at(listed.where, [&] { set(settings, fmt::format("{}={}", key, value)); });
            axis.values.push_back(settings);
        }
        grid.axes.push_back(std::move(axis));
    }
    if (lists.empty()) return;
    const auto& [key, listed] = *lists.begin();
    std::vector<std::string> known{machine_keys.begin(), machine_keys.end()};
    for (const std::string& name : recipe_keys()) known.push_back(name);
    throw Error(fmt::format("unknown key '{}'", printable(key)), listed.where,
                suggestion(key, known, "headroom show recipe upipe lists the recipe keys"));
}

}  // namespace

std::vector<std::string> expand_range(const std::string& text, const std::string& flag) {
    const std::size_t first_colon = text.find(':');
    if (first_colon == std::string::npos) return {text};
    const std::string shown = printable(text);
    const std::size_t second_colon = text.find(':', first_colon + 1);
    if (second_colon == std::string::npos || text.find(':', second_colon + 1) != std::string::npos) {
        throw Error(fmt::format("'{}' is no range", shown), flag, "write first:last:step or first:last:xfactor");
    }
    const std::int64_t first = parse_tokens(text.substr(0, first_colon), flag).value;
    const std::int64_t last = parse_tokens(text.substr(first_colon + 1, second_colon - first_colon - 1), flag).value;
    const std::string step = text.substr(second_colon + 1);
    const bool multiplies = step.starts_with('x');
    const std::int64_t by = parse_tokens(multiplies ? step.substr(1) : step, flag).value;
    if (first < 1 || last < first || by < (multiplies ? 2 : 1)) {
        throw Error(fmt::format("'{}' counts nothing", shown), flag,
                    "the last must not be below the first, and the step must lead upwards");
    }
    constexpr std::int64_t most = 1'000'000;
    if (!multiplies && (last - first) / by >= most) {
        throw Error(fmt::format("'{}' has more than {} values", shown, most), flag, "use a larger step");
    }
    std::vector<std::string> values;
    for (std::int64_t value = first; value <= last; value = multiplies ? value * by : value + by) {
        values.push_back(std::to_string(value));
        if (multiplies && value > last / by) break;
    }
    return values;
}

std::vector<FlagGroup> grid_flags() {
    FlagGroup machine = machine_flags();
    FlagGroup recipe = recipe_flags();
    recipe.title = "Recipe; comma lists, and for tokens ranges such as 128K:4M:128K or 128K:4M:x2";
    machine.title = "Model and machine; comma lists";
    std::erase_if(recipe.flags, [](const Flag& flag) { return std::string(flag.name) == "set"; });
    recipe.flags.push_back({"set", "KEY=VALUES", "any recipe key with a comma list; may be repeated", 0, true});
    recipe.flags.push_back(
        {"grid", "FILE", "YAML: model, cluster, nodes, gpus and recipe keys, each a value or a list"});
    return {machine, recipe};
}

Grid read_grid(const Arguments& arguments) {
    Lists lists;
    read_flags(arguments, lists);
    if (const auto path = arguments.get("grid")) read_file(*path, lists);
    Grid grid;
    grid.published = all_published_recipes();
    if (const auto path = arguments.get("recipe")) read_recipe_file(*path, lists, grid.fixed);
    const Listed models = taken(lists, "model", "llama3-8b");
    for (const std::string& name : models.values) {
        at(models.where + " " + printable(name), [&] { grid.models.push_back(load_model(name)); });
    }
    read_clusters(lists, grid);
    read_axes(lists, grid);
    const bool has_context = grid.fixed.context || std::any_of(grid.axes.begin(), grid.axes.end(),
                                                               [](const GridAxis& a) { return a.key == "context"; });
    if (!has_context) throw Error("no context is given", "--context", "add e.g. --context 128K:4M:x2");
    double rows = static_cast<double>(grid.models.size() * grid.clusters.size());
    for (const GridAxis& axis : grid.axes) rows *= static_cast<double>(axis.values.size());
    if (rows > most_rows) {
        throw Error(fmt::format("the grid has {:.2g} rows", rows), "headroom sweep", "shorten its lists");
    }
    return grid;
}

}  // namespace headroom
