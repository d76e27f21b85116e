// SPDX-License-Identifier: Apache-2.0
// What a command line asks for: model, cluster and settings, and where each setting was said, so that an error can
// point there. A flag wins over --set, --set over --recipe, --recipe over the method's published recipe.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "configs/foreign.hpp"
#include "models/cluster.hpp"
#include "models/settings.hpp"
#include "models/transformer.hpp"
#include "planner/commands/arguments.hpp"

namespace headroom {

struct Request {
    Transformer model;
    Cluster cluster;
    MachineNames machine;                           ///< their names and sizes, from flags or the recipe file
    Settings said;                                  ///< flags, --set and --recipe; the method may be absent
    std::optional<AttentionKernel> kernel_instead;  ///< in `said`, but chosen for the machine and not by the user
    std::map<std::string, std::string> origins;     ///< recipe key -> "--ulysses", "--set ring=2", "FILE: key"
};

/// --model --cluster --nodes --gpus
FlagGroup machine_flags();
/// One flag for each recipe key that has one, --recipe and --set. `skipped` names flags a sub-command has not.
FlagGroup recipe_flags(const std::vector<std::string>& skipped = {});

/// What flags leave open of the model and machine that the file was written for, with a note about what that was. A
/// file that names another code's model, which nothing else says, is refused.
MachineNames machine_of(MachineNames flags, const RecipeFile& file, const std::string& path);
/// Adds what the file implies about method and code unless something else is said, with a note. `methods` is what
/// stands after --method.
void add_guess(Settings& said, const std::optional<std::string>& methods, const RecipeFile& file,
               const std::string& path);

/// Flags named in `skipped` are read by the sub-command itself.
Request read_request(const Arguments& arguments, const std::vector<std::string>& skipped = {});

/// As many nodes, or as many GPUs, as --nodes and --gpus say; what is not said stays.
void resize(Cluster& cluster, const std::optional<std::string>& nodes, const std::optional<std::string>& gpus);

/// The key was said by --set; `Request::origins` then begins with it.
bool said_by_set(const Request& request, const std::string& key);

/// Calls `work`; an Error that names a recipe key leaves with the place where the key was said.
void pointing_to_origin(const Request& request, const std::function<void()>& work);

/// The published recipe under what was said, resolved and checked.
Recipe resolve(const Request& request, const Settings& said);

}  // namespace headroom
