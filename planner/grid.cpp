// SPDX-License-Identifier: Apache-2.0
#include "planner/grid.hpp"

namespace headroom {

std::int64_t Grid::size() const {
    auto total = static_cast<std::int64_t>(models.size() * clusters.size());
    for (const GridAxis& axis : axes) total *= static_cast<std::int64_t>(axis.values.size());
    return total;
}

Grid::Point Grid::point(std::int64_t index) const {
    Point point{nullptr, nullptr, {}};
    const auto digit = [&index](std::size_t count) {
        const auto size = static_cast<std::int64_t>(count);
        const auto place = static_cast<std::size_t>(index % size);
        index /= size;
        return place;
    };
    for (std::size_t axis = axes.size(); axis-- > 0;) {
        point.said = layer(point.said, axes[axis].values[digit(axes[axis].values.size())]);
    }
    point.cluster = &clusters[digit(clusters.size())];
    point.model = &models[digit(models.size())];
    point.said = layer(point.said, fixed);
    return point;
}

}  // namespace headroom
