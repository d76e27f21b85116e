// SPDX-License-Identifier: Apache-2.0
#include "planner/cudnn_limits.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "models/cudnn_limits.hpp"

namespace headroom {
namespace {

std::string wrong(std::int64_t elements, const char* of, const char* limit) {
    return fmt::format(
        "cuDNN's backward over {:.1e} {} elements gives wrong gradients without an error (beyond {}); use another "
        "kernel, more GPUs, or upipe",
        static_cast<double>(elements), of, limit);
}

}  // namespace

std::string cudnn_warning(const Schedule& schedule) {
    std::int64_t queries = 0, keys = 0;
    for (const Segment& segment : schedule.segments) {
        for_each_written(schedule, segment, [&](const Event& event, std::int64_t) {
            if (event.kind != EventKind::attention || !event.attention.backward) return;
            const BackwardElements elements = backward_elements(event.attention);
            queries = std::max(queries, elements.queries);
            keys = std::max(keys, elements.keys);
        });
    }
    if (queries > cudnn_most_query_elements) return wrong(queries, "query", "2^31");
    return keys > cudnn_most_key_elements ? wrong(keys, "key", "2^32") : "";
}

}  // namespace headroom
