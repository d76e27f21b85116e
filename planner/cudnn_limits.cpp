// SPDX-License-Identifier: Apache-2.0
#include "planner/cudnn_limits.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace headroom {
namespace {

constexpr std::int64_t most_queries = std::int64_t{1} << 31;  ///< elements; beyond it dQ and dK are wrong
constexpr std::int64_t most_keys = std::int64_t{1} << 32;     ///< over all query heads; beyond it dV is wrong

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
            const Attention& shape = event.attention;
            const std::int64_t row = std::int64_t{shape.batch} * shape.heads * shape.head_dim;
            queries = std::max(queries, row * shape.query_len);
            keys = std::max(keys, row * shape.key_len);
        });
    }
    if (queries > most_queries) return wrong(queries, "query", "2^31");
    return keys > most_keys ? wrong(keys, "key", "2^32") : "";
}

}  // namespace headroom
