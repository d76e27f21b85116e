// SPDX-License-Identifier: Apache-2.0
// Every combination of lists of values, one configuration each.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "models/settings.hpp"
#include "planner/search_space.hpp"

namespace headroom {

/// One recipe key and the values it takes.
struct GridAxis {
    std::string key;
    std::vector<Settings> values;  ///< each holds this key alone
};

struct Grid {
    std::vector<Transformer> models;
    std::vector<Cluster> clusters;  ///< of every size
    std::vector<GridAxis> axes;     ///< the last varies fastest
    Settings fixed;                 ///< holds for all, where no axis says otherwise
    PublishedRecipes published;

    std::int64_t size() const;

    struct Point {
        const Transformer* model;
        const Cluster* cluster;
        Settings said;
    };
    Point point(std::int64_t index) const;
};

}  // namespace headroom
