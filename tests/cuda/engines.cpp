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

TEST_CASE("the mask compares rows with columns in this order, from the top left corner, and only under a causal mask") {
    // The other order, or a shift of either side as bottom-right masks have it, gives the same numbers at half the
    // rate.
    for (const bool backward : {false, true}) {
        for (const std::int64_t keys : {4096, 8192}) {
            const Attention shape{4096, keys, 8, 2, 128, 1, true, backward};
            const AttentionGraph graph(shape, {8 * 128, 2 * 128});
            int compares = 0;
            Graph::Tensor index_of[4] = {};
            for (const Graph::Step& step : graph.graph.steps()) {
                if (step.mode == CUDNN_POINTWISE_GEN_INDEX) index_of[step.axis] = step.y;
                if (step.mode == CUDNN_POINTWISE_CMP_LE || step.mode == CUDNN_POINTWISE_CMP_LT ||
                    step.mode == CUDNN_POINTWISE_CMP_GT) {
                    FAIL("another comparison");
                }
                if (step.mode != CUDNN_POINTWISE_CMP_GE) continue;
                ++compares;
                CHECK(step.x == index_of[2]);
                CHECK(step.b == index_of[3]);
            }
            CHECK(compares == 1);
        }
        const AttentionGraph full({4096, 4096, 8, 2, 128, 1, false, backward}, {8 * 128, 2 * 128});
        for (const Graph::Step& step : full.graph.steps()) CHECK(step.mode != CUDNN_POINTWISE_CMP_GE);
    }
}

TEST_CASE("the traps that cost an engine or the memory of all scores would show in the choice") {
    if (!can_read_properties()) return;
    // A virtual accumulator leaves the Ampere engine, none at all a workspace of all scores: neither is what is chosen.
    for (const std::int32_t kv_heads : {1, 4, 16}) {
        const Attention shape{32768, 32768, 16, kv_heads, 128, 1, true, true};
        const Graph::Engines engines = engines_of(shape);
        CHECK(engines.shared_memory(0) >= hopper_shared_memory);
        CHECK(engines.workspace(0) == plan_workspace_bytes(shape));
        CHECK(engines.workspace(0) < std::int64_t{2} * 16 * 32768 * 32768);
    }
}
