// SPDX-License-Identifier: Apache-2.0
// The Untied-Ulysses code (commit e465aa8e) and the FPDT layers it ships, run on two H200 with torch 2.11: peaks of
// whole steps and of single modules against the replay. Bytes as measured; Llama-3-8B widths, FlashAttention-2.
#include <doctest/doctest.h>

#include <algorithm>

#include "models/block.hpp"
#include "models/loss.hpp"
#include "planner/reserved_replay.hpp"
#include "tests/scenario.hpp"

namespace headroom {
namespace {

constexpr std::int64_t context = 131072;

double error_percent(std::int64_t predicted, std::int64_t measured) {
    return 100.0 * static_cast<double>(predicted - measured) / static_cast<double>(measured);
}

Scenario two_h200(Method method, std::int64_t tokens, int layers) {
    Scenario scenario(method, tokens);
    scenario.cluster = load_cluster("h200");
    scenario.cluster.gpus_per_node = 2;
    scenario.model.layers = layers;
    scenario.settings.attention_kernel = AttentionKernel::fa2;
    return scenario;
}

/// Writes modules by hand and says how far each call rises above, and ends from, where it began.
class Module {
 public:
    explicit Module(const Workload& work) : work_(work), traits_(traits_of(work.recipe)), builder_(schedule_) {}
    Step step() { return {builder_, work_, traits_, gradients_}; }

    struct Change {
        std::int64_t peak, net;
    };
    template <class Call>
    Change run(Call call) {
        const std::size_t first = schedule_.events.size();
        call();
        std::int64_t now = 0, peak = 0;
        sizes_.resize(schedule_.tensors);
        for (std::size_t i = first; i < schedule_.events.size(); ++i) {
            const Event& event = schedule_.events[i];
            if (event.kind == EventKind::allocate) {
                sizes_[event.id] = event.place == Place::device ? event.bytes : 0;
                now += sizes_[event.id];
            } else if (event.kind == EventKind::release) {
                now -= sizes_[event.id];
            }
            peak = std::max(peak, now);
        }
        return {peak, now};
    }

 private:
    Workload work_;
    Traits traits_;
    Schedule schedule_;
    Builder builder_;
    std::vector<TensorId> gradients_;
    std::vector<std::int64_t> sizes_;
};

}  // namespace

TEST_CASE("whole steps: allocated within 1%, reserved within 10%") {
    struct Run {
        Method method;
        int layers;
        bool offload;
        std::int64_t forward, backward, reserved;
    };
    const Run runs[] = {
        {Method::ulysses, 2, true, 18914718208, 21608233472, 27709669376},
        {Method::upipe, 2, false, 19451589120, 19355884032, 25700597760},
        {Method::ulysses, 4, true, 21532071424, 25668460032, 31736201216},
    };
    for (const Run& run : runs) {
        Scenario scenario = two_h200(run.method, context, run.layers);
        scenario.settings.offload_block_inputs = run.offload ? HostPlace::pinned : HostPlace::none;
        const Replayed replayed(scenario.workload());
        Bytes forward, backward;
        for (const SegmentPeak& segment : replayed.profile.segments) {
            for (const Phase phase : {Phase::forward, Phase::loss}) {
                forward = std::max(forward, segment[static_cast<std::size_t>(phase)].device);
            }
            for (const Phase phase : {Phase::recompute, Phase::backward}) {
                backward = std::max(backward, segment[static_cast<std::size_t>(phase)].device);
            }
        }
        const ReservedMemory reserved = ReservedReplay().run(replayed.schedule, true);
        MESSAGE(to_string(run.method), ", ", run.layers, " layers: forward ", error_percent(forward.value, run.forward),
                " %, backward ", error_percent(backward.value, run.backward), " %, reserved ",
                error_percent(reserved.peak_reserved.value, run.reserved), " %");
        CHECK(std::abs(error_percent(forward.value, run.forward)) < 0.1);
        CHECK(std::abs(error_percent(backward.value, run.backward)) < 0.1);
        CHECK(std::abs(error_percent(reserved.peak_reserved.value, run.reserved)) < 10);
    }
}

TEST_CASE("Ulysses attention") {
    Module module(two_h200(Method::ulysses, context, 1).workload());
    Step step = module.step();
    Kept kept;
    const auto forward = module.run([&] { kept = attention_forward(step, true); });
    CHECK(forward.peak == 4890568704 - 729819136);
    CHECK(forward.net == 3154126848 - 729819136);
    const auto backward = module.run([&] { attention_backward(step, kept); });
    CHECK(backward.peak == 7486842880 - 3690997760);
    CHECK(backward.net == 2424317952 - 3690997760);
}

TEST_CASE("Ulysses attention core: exchange, kernel, exchange back") {
    const Workload work = two_h200(Method::ulysses, context, 1).workload();
    Module module(work);
    Step step = module.step();
    Kept kept;
    const auto forward = module.run([&] {
        kept.query = gather_sequence(step, "query", {}, work.query);
        kept.key = gather_sequence(step, "key", {}, work.key);
        kept.value = gather_sequence(step, "value", {}, work.key);
        ring_forward(step, kept);
        kept.projected = scatter_sequence(step, "output", {}, work.query, false);
    });
    CHECK(forward.peak == 4278192128 - 1317013504);
    CHECK(error_percent(forward.net, 3204450304 - 1317013504) == doctest::Approx(0).epsilon(0.01));
    const auto backward = module.run([&] {
        const TensorId gradient = gather_sequence(step, "gradient of output", {}, work.query);
        ring_backward(step, kept, gradient);
    });
    CHECK(backward.peak == 8040482816 - 3741321216);
}

TEST_CASE("Ulysses block, checkpointed or not") {
    const Workload work = two_h200(Method::ulysses, context, 1).workload();
    Module module(work);
    Step step = module.step();
    BlockKept kept;
    const TensorId output = step.to.reserve();
    const TensorId gradient = step.to.reserve();
    const auto dropping = module.run([&] { block_forward(step, kept, false, output, Group::residual); });
    CHECK(dropping.peak == 5779769344 - 1082148864);
    CHECK(dropping.net == 1619019776 - 1082148864);
    module.run([&] { step.to.release(output); });

    const auto forward = module.run([&] { block_forward(step, kept, true, output, Group::residual); });
    CHECK(forward.peak == 5779769344 - 1082148864);
    CHECK(forward.net == 5117069312 - 1082148864);
    module.run([&] { step.to.allocate_again(gradient, "gradient", Group::residual, work.hidden); });
    // The harness holds the incoming gradient (X) until the end; autograd would not.
    const auto backward = module.run([&] {
        step.to.allocate("held by the harness", Group::residual, work.hidden);
        block_backward(step, kept, gradient);
    });
    CHECK(std::abs(error_percent(backward.peak, 9265244160 - 5653940224)) < 0.01);
}

TEST_CASE("tiled MLP and norm") {
    const Workload work = two_h200(Method::ulysses, context, 1).workload();
    Module module(work);
    Step step = module.step();
    BlockKept kept;
    const auto forward = module.run([&] { mlp_forward(step, kept, true); });
    CHECK(forward.peak == 2038433792 - 964691968);
    CHECK(forward.net == 1501562880 - 964691968);
    const auto backward = module.run([&] { mlp_backward(step, kept); });
    CHECK(backward.peak == 3665823744 - 2038433792);
    CHECK(backward.net == 2927626240 - 2038433792);

    const auto norm = module.run([&] { norm_forward(step, "norm"); });
    CHECK(norm.peak == 1686120448 - 612378624);
    const auto norm_back = module.run([&] { norm_backward(step, "norm"); });
    CHECK(std::abs(error_percent(norm_back.peak, 2290132992 - 1686120448)) < 0.01);
    CHECK(norm_back.net == 2222999552 - 1686120448);
}

TEST_CASE("FPDT attention with offload") {
    struct Run {
        std::int64_t tokens, forward_peak, forward_net, backward_peak, before_backward;
    };
    const Run runs[] = {
        {131072, 2866829824 - 713054720, 2124438016 - 713054720, 5549111808, 2661308928},
        {262144, 4360002048 - 1266702848, 3751827968 - 1266702848, 8250243584, 4825569792},
    };
    for (const Run& run : runs) {
        CAPTURE(run.tokens);
        Scenario scenario = two_h200(Method::fpdt, run.tokens, 1);
        scenario.settings.chunk_tokens = Tokens{32768};
        Module module(scenario.workload());
        Step step = module.step();
        Kept kept;
        const auto forward = module.run([&] { kept = attention_forward(step, true); });
        CHECK(std::abs(error_percent(forward.peak, run.forward_peak)) < 0.1);
        CHECK(std::abs(error_percent(forward.net, run.forward_net)) < 0.1);
        const auto backward = module.run([&] { attention_backward(step, kept); });
        CHECK(std::abs(error_percent(run.before_backward + backward.peak, run.backward_peak)) < 1);
    }
}

TEST_CASE("FPDT feed-forward and loss") {
    Scenario scenario = two_h200(Method::fpdt, context, 1);
    const Workload work = scenario.workload();
    {
        Module module(work);
        Step step = module.step();
        BlockKept kept;
        CHECK(module.run([&] { mlp_forward(step, kept, true); }).peak == 3917547520 - 964757504);
        CHECK(std::abs(error_percent(module.run([&] { mlp_backward(step, kept); }).peak, 7038248960 - 2575370240)) < 1);
    }
    {
        Module module(work);
        Step step = module.step();
        LossKept kept;
        // The measured module starts at the normed hidden state; ours makes it.
        const auto forward = module.run([&] { kept = loss_forward(step); });
        CHECK(std::abs(error_percent(forward.peak - work.hidden.value, 2451839488 - 1663567872)) < 1);
        const TensorId gradient = step.to.reserve();
        const auto backward = module.run([&] { loss_backward(step, kept, no_tensor, gradient); });
        CHECK(std::abs(error_percent(backward.peak, 6550723584 - 1663568896)) < 1);
    }
}

}  // namespace headroom
