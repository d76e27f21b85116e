// SPDX-License-Identifier: Apache-2.0
// Attention kernels that a machine does not run, or that compute the wrong thing there.
#include <doctest/doctest.h>

#include "tests/json_of.hpp"
#include "tests/run_headroom.hpp"
#include "tests/scenario.hpp"

namespace headroom {

namespace {

using Json = nlohmann::ordered_json;

}  // namespace

TEST_CASE("where the published kernel does not run, one that does is taken, and said in one line") {
    for (const char* cluster : {"a100-sxm-80gb", "b200"}) {
        CAPTURE(cluster);
        const Outcome plan = run_headroom({"plan", "--cluster", cluster, "--context", "1M"});
        CHECK(contains(plan.out, "untied-ulysses code with fa2 attention"));
        CHECK(contains(plan.out, "step: "));
        CHECK_FALSE(contains(plan.out, "no step time"));
        CHECK(contains(plan.err, "has no rates for fa3, so attention is planned with fa2"));
        CHECK(lines_of(plan.err).size() == 1);
        const Json rows = json_of({"max-context", "--cluster", cluster});
        for (const Json& row : rows["methods"]) CHECK(row["plan"]["step"].is_object());
        const Outcome sweep = run_headroom({"sweep", "--cluster", cluster, "--context", "1M"});
        CHECK(contains(sweep.out, ",untied-ulysses,fa2,"));
        CHECK(lines_of(sweep.err).size() == 1);
        const Outcome chosen =
            run_headroom({"plan", "--cluster", cluster, "--context", "1M", "--attention-kernel", "fa3"});
        CHECK(contains(chosen.out, "no step time"));
        CHECK(chosen.err.empty());
    }
    CHECK(run_headroom({"plan", "--context", "1M"}).err.empty());
    const Outcome moved =
        run_headroom({"what-if", "--cluster", "a100-sxm-80gb", "--context", "1M", "--change", "cluster=h100-sxm-80gb"});
    CHECK(contains(moved.out, "with fa2 attention"));
    const Json change =
        json_of({"what-if", "--cluster", "a100-sxm-80gb", "--context", "1M", "--change", "cluster=h100-sxm-80gb"});
    CHECK(change["variants"][0]["plan"]["recipe"]["attention_kernel"] == "fa3");
}

TEST_CASE("cuDNN's wrong gradients are warned of where a backward launch is too large for it") {
    const auto warned = [](Method method, std::int64_t context, AttentionKernel kernel) {
        Scenario scenario(method, context);
        scenario.settings.attention_kernel = kernel;
        for (const std::string& warning : scenario.plan().warnings) {
            if (warning.starts_with("cuDNN's backward over ")) return warning;
        }
        return std::string();
    };
    // 8 ranks of 32 heads of 128: Ulysses' kernel has 512 elements for each token of the context.
    CHECK(warned(Method::ulysses, 4 * mebi, AttentionKernel::cudnn) == "");
    CHECK(contains(warned(Method::ulysses, 4 * mebi + 4096, AttentionKernel::cudnn), "over 2.1e+09 query elements"));
    CHECK(warned(Method::ulysses, 8 * mebi, AttentionKernel::fa3) == "");
    CHECK(warned(Method::upipe, 8 * mebi, AttentionKernel::cudnn) == "");  // a quarter of the heads at a time
    CHECK(contains(warned(Method::upipe, 17 * mebi, AttentionKernel::cudnn), "beyond 2^31"));
    const Outcome longest =
        run_headroom({"max-context", "--cluster", "h200", "--method", "ulysses,upipe", "--attention-kernel", "cudnn"});
    CHECK(contains(longest.out, "warning: cuDNN's backward over "));
}

}  // namespace headroom
