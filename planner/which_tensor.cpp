// SPDX-License-Identifier: Apache-2.0
#include "planner/which_tensor.hpp"

#include <algorithm>
#include <cstdlib>
#include <iterator>
#include <string_view>

#include "models/training_step.hpp"
#include "models/workload.hpp"
#include "planner/evaluate.hpp"

namespace headroom {
namespace {

/// Every tensor once, by name and size.
void collect(const Schedule& schedule, std::vector<NamedTensor>& tensors) {
    for (const Segment& segment : schedule.segments) {
        Phase phase = segment.phase;
        for_each_event(schedule, segment, [&](const Event& event) {
            if (event.kind == EventKind::phase) phase = static_cast<Phase>(event.id);
            if (event.kind != EventKind::allocate || event.place != Place::device) return;
            const bool known = std::any_of(tensors.begin(), tensors.end(), [&](const NamedTensor& t) {
                return t.bytes.value == event.bytes && t.name == event.name;
            });
            if (!known) tensors.push_back({event.name, event.group, phase, {event.bytes}});
        });
    }
}

/// Of the tensors in order of size, one below and one above.
std::vector<NamedTensor> neighbours(std::vector<NamedTensor> all, Bytes size) {
    std::stable_sort(all.begin(), all.end(), [](const auto& a, const auto& b) { return a.bytes < b.bytes; });
    const auto above = std::find_if(all.begin(), all.end(), [&](const auto& tensor) { return tensor.bytes > size; });
    std::vector<NamedTensor> list;
    if (above != all.begin()) list.push_back(*(above - 1));
    if (above != all.end()) list.push_back(*above);
    return list;
}

}  // namespace

Suspects which_tensor(const Transformer& model, const Cluster& cluster, const Recipe& recipe, Bytes size,
                      Bytes rounding) {
    Suspects suspects;
    suspects.least = size - rounding;
    suspects.most = size + rounding;
    std::vector<NamedTensor> all;
    for (const RingRole role : ring_roles(recipe)) {
        Schedule schedule;
        build_training_step(make_workload(model, cluster, recipe, role), schedule);
        collect(schedule, all);
    }
    std::copy_if(all.begin(), all.end(), std::back_inserter(suspects.tensors), [&](const NamedTensor& tensor) {
        return tensor.bytes >= suspects.least && tensor.bytes <= suspects.most;
    });
    if (suspects.tensors.empty()) suspects.nearest = neighbours(std::move(all), size);
    suspects.beyond_device = suspects.least > cluster.device_memory;
    if (suspects.beyond_device) return suspects;
    std::stable_sort(suspects.tensors.begin(), suspects.tensors.end(), [&](const auto& a, const auto& b) {
        return std::llabs((a.bytes - size).value) < std::llabs((b.bytes - size).value);
    });
    const std::pair<const char*, std::int64_t> widths[]{{"vocabulary", model.vocabulary},
                                                        {"MLP width", model.ffn},
                                                        {"hidden size", model.hidden},
                                                        {"all query heads", model.query_width()},
                                                        {"all KV heads", model.kv_width()}};
    std::int64_t before = 0;
    for (const auto& [name, columns] : widths) {
        if (columns == before) continue;  // query heads are often as wide as the hidden state
        before = columns;
        for (const int element : {4, 2}) {
            const std::int64_t row = columns * element;
            const std::int64_t fewest = divide_round_up(suspects.least.value, row);
            const std::int64_t most = suspects.most.value / row;
            if (most >= 1 && fewest <= most) suspects.rows.push_back({name, columns, element, fewest, most});
        }
    }
    return suspects;
}

}  // namespace headroom
