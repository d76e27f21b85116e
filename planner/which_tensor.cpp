// SPDX-License-Identifier: Apache-2.0
#include "planner/which_tensor.hpp"

#include <algorithm>
#include <cstdlib>
#include <string_view>

#include "models/training_step.hpp"
#include "models/workload.hpp"
#include "planner/evaluate.hpp"

namespace headroom {
namespace {

void collect(const Schedule& schedule, Suspects& suspects) {
    for (const Segment& segment : schedule.segments) {
        Phase phase = segment.phase;
        for_each_event(schedule, segment, [&](const Event& event) {
            if (event.kind == EventKind::phase) phase = static_cast<Phase>(event.id);
            if (event.kind != EventKind::allocate || event.place != Place::device) return;
            if (event.bytes < suspects.least.value || event.bytes > suspects.most.value) return;
            const bool known = std::any_of(suspects.tensors.begin(), suspects.tensors.end(), [&](const NamedTensor& t) {
                return t.name == event.name && t.bytes.value == event.bytes;
            });
            if (!known) suspects.tensors.push_back({event.name, event.group, phase, {event.bytes}});
        });
    }
}

}  // namespace

Suspects which_tensor(const Transformer& model, const Cluster& cluster, const Recipe& recipe, Bytes size,
                      Bytes rounding) {
    Suspects suspects{size - rounding, size + rounding, {}, {}};
    for (const RingRole role : ring_roles(recipe)) {
        Schedule schedule;
        build_training_step(make_workload(model, cluster, recipe, role), schedule);
        collect(schedule, suspects);
    }
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
