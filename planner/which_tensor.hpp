// SPDX-License-Identifier: Apache-2.0
// Which tensor was it? The size in an out-of-memory message, read backwards.
#pragma once

#include <string>
#include <vector>

#include "models/cluster.hpp"
#include "models/recipe.hpp"
#include "models/schedule.hpp"
#include "models/transformer.hpp"

namespace headroom {

/// A tensor that a step allocates on the device.
struct NamedTensor {
    std::string name;
    Group group{};
    Phase phase{};  ///< where it is allocated first
    Bytes bytes;
};

/// Rows of a width that come to the size.
struct RowCount {
    std::string width;  ///< "vocabulary", "MLP width", ...
    std::int64_t columns = 0;
    int element_bytes = 4;
    std::int64_t fewest = 0, most = 0;  ///< rows, as far as the size was rounded
};

struct Suspects {
    Bytes least, most;                 ///< what the size stands for
    std::vector<NamedTensor> tensors;  ///< of the step, nearest first
    std::vector<NamedTensor> nearest;  ///< without any of the size: one below it and one above, where there are
    bool beyond_device = false;        ///< more than the whole GPU has
    std::vector<RowCount> rows;
};

Suspects which_tensor(const Transformer& model, const Cluster& cluster, const Recipe& recipe, Bytes size,
                      Bytes rounding);

}  // namespace headroom
