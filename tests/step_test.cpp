// SPDX-License-Identifier: Apache-2.0
// What a step time is turned into: FLOPs by their conventions, tokens counted once, the rank that decides.
#include <doctest/doctest.h>

#include <numeric>

#include "configs/calibration.hpp"
#include "models/error.hpp"
#include "models/model_flops.hpp"
#include "planner/evaluate.hpp"
#include "planner/step.hpp"
#include "tests/scenario.hpp"

namespace headroom {
namespace {

StepPrediction predicted(const Scenario& scenario, AttentionCount count = AttentionCount::causal) {
    Evaluator evaluator;
    return predict(scenario.model, scenario.cluster, scenario.recipe(), calibration_for(scenario.cluster), evaluator,
                   count);
}

double tera(double flops) { return flops / 1e12; }

}  // namespace

TEST_CASE("model FLOPs of llama2-7b, batch 4, as maxtext counts them before and after its causal fix") {
    // 6,738,415,616 parameters less the embedding of 131,072,000 and norms of 65 x 4096 = 266,240: 6,607,077,376.
    // Weights: 6 x that x 4 x 8,192 = 1,299.00e12. Attention: 12 x 32 x 4096 x 8,192^2 x 4 = 422.21e12.
    const Transformer model = load_model("llama2-7b");
    const auto flops = [&](std::int64_t length, AttentionCount count) {
        return model_flops(model, Tokens{length}, 4, count);
    };
    // Printed to two decimals; of two rounded figures their sum.
    const auto as_printed = [](double flops_printed) {
        return doctest::Approx(flops_printed).scale(0).epsilon(0.006 / flops_printed);
    };
    CHECK(tera(flops(8'192, AttentionCount::full).weights) == as_printed(1'299.00));
    CHECK(tera(flops(8'192, AttentionCount::full).attention) == as_printed(422.21));
    CHECK(tera(flops(8'192, AttentionCount::full).total()) == as_printed(1'721.22));
    CHECK(tera(flops(8'192, AttentionCount::causal).attention) == as_printed(211.11));
    CHECK(tera(flops(8'192, AttentionCount::causal).total()) == as_printed(1'510.11));
    CHECK(tera(flops(129'024, AttentionCount::full).weights) == as_printed(20'459.32));
    CHECK(tera(flops(129'024, AttentionCount::full).attention) == as_printed(104'735.08));
    CHECK(tera(flops(129'024, AttentionCount::full).total()) == as_printed(125'194.40));
    CHECK(tera(flops(129'024, AttentionCount::causal).attention) == as_printed(52'367.54));
    CHECK(tera(flops(129'024, AttentionCount::causal).total()) == as_printed(72'826.86));
}

TEST_CASE("a tied head is multiplied too: the same weights as an untied one") {
    Transformer tied = load_model("llama3-8b");
    Transformer untied = tied;
    tied.tied_embeddings = true;
    untied.tied_embeddings = false;
    REQUIRE(count_parameters(tied).total() < count_parameters(untied).total());
    const auto weights = [](const Transformer& model) {
        return model_flops(model, Tokens{1024}, 1, AttentionCount::causal).weights;
    };
    CHECK(weights(tied) == weights(untied));
}

TEST_CASE("tokens of a context-parallel group count once") {
    Scenario one(Method::ulysses, 131072);
    const StepPrediction step = predicted(one);
    CHECK(step.tokens_per_second_per_gpu == doctest::Approx(131072.0 / step.time.seconds.value / 8));
    CHECK(step.tokens_per_second == doctest::Approx(131072.0 / step.time.seconds.value));

    // Two groups of 8 on two nodes: each has its own sequence.
    Scenario two(Method::ulysses, 131072);
    two.with_nodes(2);
    two.settings.ulysses = 8;
    two.settings.ring = 1;
    const StepPrediction pair = predicted(two);
    REQUIRE(two.recipe().context_parallel() == 8);
    CHECK(pair.tokens_per_second == doctest::Approx(2 * 131072.0 / pair.time.seconds.value));
    CHECK(pair.tokens_per_second_per_gpu == doctest::Approx(2 * 131072.0 / pair.time.seconds.value / 16));

    Scenario batch(Method::ulysses, 131072);
    batch.settings.batch = 2;
    const StepPrediction both = predicted(batch);
    CHECK(both.tokens_per_second == doctest::Approx(2 * 131072.0 / both.time.seconds.value));
}

TEST_CASE("the slower ring role decides") {
    for (const Method method : {Method::ring, Method::native}) {
        Scenario scenario(method, 262144);
        const Calibration calibration = calibration_for(scenario.cluster);
        double slowest = 0;
        double fastest = 1e30;
        for (const RingRole role : {RingRole::first, RingRole::later}) {
            Evaluator evaluator;
            build_training_step(scenario.workload(role), evaluator.schedule);
            const double seconds =
                predict_step(evaluator.schedule, calibration, topology(scenario.recipe(), scenario.cluster),
                             scenario.recipe().attention_kernel, evaluator.timeline)
                    .seconds.value;
            slowest = std::max(slowest, seconds);
            fastest = std::min(fastest, seconds);
        }
        CAPTURE(method);
        CHECK(fastest < slowest);
        const StepPrediction step = predicted(scenario);
        CHECK(step.time.seconds.value == slowest);
        CHECK(step.slowest_rank == (step.role == RingRole::first ? 0 : 1));
    }
}

TEST_CASE("the range holds the value, and the exposed parts make the step") {
    for (std::size_t i = 0; i < method_names.size(); ++i) {
        for (const std::int64_t context : {131072, 1048576}) {
            CAPTURE(method_names[i]);
            CAPTURE(context);
            const StepPrediction step = predicted(Scenario(static_cast<Method>(i), context));
            CHECK(step.time.low < step.time.seconds);
            CHECK(step.time.seconds < step.time.high);
            CHECK(step.tokens_per_second_per_gpu_low < step.tokens_per_second_per_gpu);
            CHECK(step.tokens_per_second_per_gpu < step.tokens_per_second_per_gpu_high);
            double exposed = 0;
            for (const PartTime& part : step.time.parts) exposed += part.exposed.value;
            CHECK(exposed == doctest::Approx(step.time.seconds.value).epsilon(1e-9));
        }
    }
}

TEST_CASE("a search sees the memory and the time of a plan") {
    for (const Method method : {Method::ring, Method::upipe}) {
        const Scenario scenario(method, 524288);
        const Calibration calibration = calibration_for(scenario.cluster);
        Evaluator evaluator;
        const Evaluation both = evaluator.evaluate(scenario.model, scenario.cluster, scenario.recipe(), calibration);
        const Plan plan =
            make_plan(scenario.model, scenario.cluster, scenario.recipe(), {calibration, AttentionCount::causal});
        CHECK(both.memory.device_peak == plan.device.peak);
        REQUIRE(plan.step.has_value());
        CHECK(both.step.seconds == plan.step->time.seconds);
    }
}

TEST_CASE("MFU counts the model, HFU what runs; recomputing is the difference") {
    // Full checkpointing runs every block forward twice: 8 instead of 6 per weight, and of attention two forwards and
    // a backward of 2.5: 4.5 products of two where the model needs 3.
    const Scenario scenario(Method::ulysses, 1048576);
    const StepPrediction step = predicted(scenario);
    CHECK(step.mfu > 0.3);
    CHECK(step.hfu > 1.5 * step.mfu);  // tiled MLPs run once more again: 5 instead of 3
    CHECK(step.hfu < 1.52 * step.mfu);
    CHECK(step.hfu < 1);

    const ModelFlops model = model_flops(scenario.model, Tokens{1048576}, 1, AttentionCount::causal);
    CHECK(step.mfu == doctest::Approx(model.total() / 8 / step.time.seconds.value / 989.4e12));
}

TEST_CASE("an MFU above 100% is refused, and the refusal names the convention") {
    // At 3M tokens attention is nearly all and 12 instead of 6 doubles the MFU: 0.41 * 1.4 is below a half, * 1.6
    // above.
    const Scenario scenario(Method::ulysses, 3145728);
    const auto refusal = [&](double faster, AttentionCount count) {
        Calibration calibration = calibration_for(scenario.cluster);
        for (auto& direction : calibration.attention[static_cast<std::size_t>(AttentionKernel::fa3)].curves) {
            for (AttentionCurve& curve : direction) curve.asymptote.value *= faster;
        }
        Evaluator evaluator;
        try {
            predict(scenario.model, scenario.cluster, scenario.recipe(), calibration, evaluator, count);
        } catch (const Error& error) {
            return std::string(error.what()) + "|" + error.where() + "|" + error.hint();
        }
        return std::string("accepted");
    };
    CHECK(refusal(1.6, AttentionCount::causal) == "accepted");
    const std::string full = refusal(1.6, AttentionCount::full);
    CHECK(full.find("attention counted full") != std::string::npos);
    CHECK(full.find("|--mfu full|--mfu causal") != std::string::npos);
    const std::string causal = refusal(4, AttentionCount::causal);
    CHECK(causal.find("causal attention counted half") != std::string::npos);
    CHECK(causal.find("|--calibration h100-sxm-80gb|") != std::string::npos);
}

TEST_CASE("without rates for the kernel the memory is planned, and the plan says why there is no time") {
    Scenario scenario(Method::upipe, 131072);
    scenario.cluster = load_cluster("a100-sxm-80gb");
    const Plan plan = make_plan(scenario.model, scenario.cluster, scenario.recipe(),
                                {calibration_for(scenario.cluster), AttentionCount::causal});
    CHECK(plan.device.peak.value > 0);
    CHECK_FALSE(plan.step.has_value());
    REQUIRE_FALSE(plan.warnings.empty());
    CHECK(plan.warnings.back().find("no rates for attention kernel fa3") != std::string::npos);
    CHECK(plan.warnings.back().find("--attention-kernel fa2") != std::string::npos);

    scenario.settings.attention_kernel = AttentionKernel::fa2;
    const StepPrediction step = predicted(scenario);
    CHECK(step.calibration.kind == "derived");
    CHECK(step.doubt.find("derived") != std::string::npos);
    CHECK(warnings(step).size() == 2);
}

}  // namespace headroom
