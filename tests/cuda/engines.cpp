// SPDX-License-Identifier: Apache-2.0
// Which engines cuDNN chooses for our attention on an H200, asked without one: the properties come from a file.
#define DOCTEST_CONFIG_IMPLEMENT_WITH_MAIN
#include <doctest/doctest.h>

#include <cudnn.h>

#include <fstream>
#include <sstream>

#include "calibrate/attention_limits.hpp"
#include "calibrate/cuda/attention.hpp"
#include "models/error.hpp"

using namespace headroom;

namespace {

const Descriptor& h200() {
    static const Descriptor device = [] {
        std::ifstream in(HEADROOM_DEVICE_PROPERTIES);
        std::ostringstream text;
        text << in.rdbuf();
        return device_from_json(text.str());
    }();
    return device;
}

/// The keys of the file are those of the cuDNN that wrote it; another one may want more.
bool can_read_properties() {
    try {
        h200();
        return true;
    } catch (const Error& error) {
        MESSAGE("skipped: cuDNN ", cudnnGetVersion(), " does not read these device properties: ", error.what());
        return false;
    }
}

Graph::Engines engines_of(const Attention& shape) {
    AttentionGraph graph(shape,
                         {std::int64_t{shape.heads} * shape.head_dim, std::int64_t{shape.kv_heads} * shape.head_dim});
    return graph.graph.engines({nullptr, &h200()});
}

}  // namespace

TEST_CASE("every attention gets the Hopper engine first, with the workspace the plan counts on") {
    if (!can_read_properties()) return;
    for (const bool backward : {false, true}) {
        for (const bool causal : {false, true}) {
            for (const std::int32_t kv_heads : {8, 32}) {
                for (const std::int64_t tokens : {8192, 131072}) {
                    const Attention shape{tokens, tokens, 32, kv_heads, 128, 1, causal, backward};
                    CAPTURE(backward);
                    CAPTURE(causal);
                    CAPTURE(kv_heads);
                    CAPTURE(tokens);
                    const Graph::Engines engines = engines_of(shape);
                    CHECK(engines.shared_memory(0) >= hopper_shared_memory);
                    CHECK(engines.workspace(0) == plan_workspace_bytes(shape));
                }
            }
        }
    }
}

TEST_CASE("rectangles and other head widths have engines, widths that are no multiple of 8 do not reach cuDNN") {
    if (!can_read_properties()) return;
    for (const std::int32_t head_dim : {64, 96, 256}) {
        for (const bool backward : {false, true}) {
            CHECK_FALSE(engines_of({4096, 4096, 8, 2, head_dim, 1, true, backward}).configs.empty());
        }
    }
    CHECK(engines_of({16384, 131072, 8, 2, 128, 1, false, true}).shared_memory(0) >= hopper_shared_memory);
    CHECK_THROWS_AS(engines_of({4096, 4096, 8, 2, 100, 1, false, false}), Error);
    CHECK_THROWS_AS(engines_of({1048576, 1048576, 17, 17, 128, 1, true, true}), Error);  // silently wrong in one call
}
