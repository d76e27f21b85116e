// SPDX-License-Identifier: Apache-2.0
// Every recipe that a search may choose from, without holding them: structures (method, code, degrees, chunks, batch)
// times the options that each structure's code offers.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <vector>

#include "models/error.hpp"
#include "models/settings.hpp"
#include "planner/offered.hpp"

namespace headroom {

/// FPDT's chunks are searched up to this one, in powers of two.
inline constexpr Tokens longest_chunk{mebi};

/// Recipes that differ in what a team decides first. The search ranks the best of each.
struct Family {
    Method method{};
    Implementation implementation{};
    int ulysses = 1, ring = 1;
    bool operator==(const Family&) const = default;
};

/// One index for each axis of options.
struct Options {
    std::uint8_t placement = 0, states = 0, chunks = 0, norm = 0, mlp = 0, loss = 0;
    bool operator==(const Options&) const = default;
};

struct Structure {
    Recipe base;       ///< what the options do not touch is as published, or as the user said
    Recipe published;  ///< as its authors run this structure; what the user said stays
    std::size_t family = 0;
    std::vector<Placement> placements;
    std::vector<StateChoice> states;
    std::vector<bool> chunks_on_host;
    std::vector<Tiling> norm, mlp, loss;

    std::int64_t size() const;
    Recipe recipe(const Options& options) const;
    /// In the order of `index`; options of one index differ between structures.
    Options options(std::int64_t index) const;
};

struct SearchSpace {
    std::vector<Family> families;
    std::vector<Structure> structures;  ///< batches of one structure follow each other, smallest first
    std::vector<Structure> beyond;      ///< those that the shipped code ends before: not searched
    std::optional<Error> refusal;       ///< the rule that the first invalid candidate breaks

    std::int64_t size() const;
};

/// The published recipe of every method, by Method.
using PublishedRecipes = std::array<Settings, method_names.size()>;

/// All valid recipes for the context in `said`. What `said` holds is fixed, everything else varies; implementations
/// are the shipped ones unless `said` names one. With `methods`, only those.
SearchSpace search_space(const Settings& said, const PublishedRecipes& published, const Transformer& model,
                         const Cluster& cluster, const std::vector<Method>& methods = {});

}  // namespace headroom
