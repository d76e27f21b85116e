// SPDX-License-Identifier: Apache-2.0
// What no step time may break, whatever the constants: the roofline, growth with the context, and that work taken away
// or hidden never costs time.
#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "configs/calibration.hpp"
#include "planner/evaluate.hpp"
#include "planner/step.hpp"
#include "simulator/rates.hpp"
#include "tests/scenario.hpp"

namespace headroom {
namespace {

const std::array all_methods{Method::native, Method::ring, Method::ulysses, Method::usp, Method::fpdt, Method::upipe};
constexpr std::int64_t lengths[]{65536, 262144, 1048576, 3145728};

double seconds(const Scenario& scenario, const Calibration& calibration, RingRole role) {
    Evaluator evaluator;
    build_training_step(scenario.workload(role), evaluator.schedule);
    return predict_step(evaluator.schedule, calibration, topology(scenario.recipe(), scenario.cluster),
                        scenario.recipe().attention_kernel, evaluator.timeline)
        .seconds.value;
}

double seconds(const Scenario& scenario, const Calibration& calibration) {
    double slowest = 0;
    for (const RingRole role : ring_roles(scenario.recipe())) {
        slowest = std::max(slowest, seconds(scenario, calibration, role));
    }
    return slowest;
}

/// Attention at the curves' asymptotes and products at the table's best rate: nothing else, and nothing lost.
double roofline(const Scenario& scenario, const Calibration& calibration, RingRole role) {
    Schedule schedule;
    build_training_step(scenario.workload(role), schedule);
    double best_product = 0;
    for (const GemmPoint& point : calibration.gemm.points) best_product = std::max(best_product, point.rate.value);
    const auto& kernel = calibration.attention[static_cast<std::size_t>(scenario.recipe().attention_kernel)];
    double best_attention[2]{};
    for (std::size_t backward = 0; backward < 2; ++backward) {
        for (const AttentionCurve& curve : kernel.curves[backward]) {
            // fall is measured from 64K: shorter lengths may run above the asymptote by as much as it gives at 512.
            const double above = std::pow(65536.0 / 512, curve.fall);
            best_attention[backward] = std::max(best_attention[backward], curve.asymptote.value * above);
        }
    }
    double total = 0;
    for (const Segment& segment : schedule.segments) {
        double once = 0;
        for_each_event(schedule, segment, [&](const Event& event) {
            if (event.kind == EventKind::attention) {
                once += attention_flops(event.attention) / best_attention[event.attention.backward ? 1 : 0];
            } else if (event.kind == EventKind::gemm) {
                const Gemm& gemm = event.gemm;
                once += 2.0 * static_cast<double>(gemm.m) * static_cast<double>(gemm.n) * static_cast<double>(gemm.k) *
                        gemm.count / best_product;
            }
        });
        total += once * segment.repeat;
    }
    return total;
}

}  // namespace

TEST_CASE("no step is faster than its products and attention at the best rates of the constants") {
    for (const char* cluster : {"h100-sxm-80gb", "h200"}) {
        for (const Method method : all_methods) {
            for (const std::int64_t length : lengths) {
                Scenario scenario(method, length);
                scenario.cluster = load_cluster(cluster);
                const Calibration calibration = calibration_for(scenario.cluster);
                for (const RingRole role : ring_roles(scenario.recipe())) {
                    CAPTURE(to_string(method));
                    CAPTURE(length);
                    const double least = roofline(scenario, calibration, role);
                    CHECK(least > 0);
                    CHECK(seconds(scenario, calibration, role) > least);
                }
            }
        }
    }
}

TEST_CASE("a longer context takes longer, and more than in proportion in the end") {
    for (const Method method : all_methods) {
        const Calibration calibration = calibration_for(Scenario(method, 65536).cluster);
        double before = 0;
        for (std::int64_t length = 65536; length <= 4194304; length += length < 1048576 ? 65536 : 524288) {
            CAPTURE(to_string(method));
            CAPTURE(length);
            const double now = seconds(Scenario(method, length), calibration);
            CHECK(now > before);
            before = now;
        }
        CHECK(seconds(Scenario(method, 4194304), calibration) > 3 * seconds(Scenario(method, 2097152), calibration));
    }
}

TEST_CASE("collectives that cost nothing never slow a step, nor does a faster link") {
    for (const Method method : all_methods) {
        for (const std::int64_t length : {131072, 1048576}) {
            Scenario scenario(method, length);
            scenario.with_nodes(2);
            const Calibration usual = calibration_for(scenario.cluster);
            Calibration faster = usual;
            Calibration free = usual;
            const auto speed_up = [](Calibration& calibration, double factor) {
                for (LinkCurve& link : calibration.links) {
                    link.rate.value *= factor;
                    link.alpha.value /= factor;
                    link.alpha_idle.value /= factor;
                    for (LinkPoint& point : link.points) point.seconds /= factor;
                }
                calibration.across_nodes.alpha.value /= factor;
                calibration.across_nodes.nic_rate.value *= factor;
                calibration.across_nodes.ring_rate.value *= factor;
            };
            speed_up(faster, 2);
            speed_up(free, 1e9);
            CAPTURE(to_string(method));
            CAPTURE(length);
            const double now = seconds(scenario, usual);
            const double then = seconds(scenario, faster);
            const double without = seconds(scenario, free);
            CHECK(then < now);
            CHECK(without < then);
        }
    }
}

TEST_CASE("hiding ring transfers under attention never slows a step") {
    bool any = false;
    for (const Method method : all_methods) {
        for (const std::int64_t length : lengths) {
            const Scenario scenario(method, length);
            Calibration calibration = calibration_for(scenario.cluster);
            auto& kernel = calibration.attention[static_cast<std::size_t>(scenario.recipe().attention_kernel)];
            kernel.ring_overlap = Overlap::hidden;
            const double hidden = seconds(scenario, calibration);
            kernel.ring_overlap = Overlap::serialised;
            const double serialised = seconds(scenario, calibration);
            CAPTURE(to_string(method));
            CAPTURE(length);
            CHECK(hidden <= serialised);
            any = any || hidden < serialised;
        }
    }
    CHECK(any);
}

TEST_CASE("a collective that takes no SMs never slows a step") {
    for (const Method method : all_methods) {
        const Scenario scenario(method, 131072);
        Calibration calibration = calibration_for(scenario.cluster);
        const double usual = seconds(scenario, calibration);
        calibration.collective_share.value = 0;
        CAPTURE(to_string(method));
        CHECK(seconds(scenario, calibration) <= usual);
    }
}

TEST_CASE("a faster host never slows a step, and one that takes no time is hardly waited for") {
    for (const Method method : all_methods) {
        const Scenario scenario(method, 131072);
        Calibration calibration = calibration_for(scenario.cluster);
        Evaluator evaluator;
        const auto part = [&] {
            return predict(scenario.model, scenario.cluster, scenario.recipe(), calibration, evaluator).time;
        };
        const StepTime usual = part();
        for (Constant* constant : {&calibration.host.launch, &calibration.host.after_wait, &calibration.host.barrier,
                                   &calibration.host.tokenise}) {
            constant->value /= 1e6;
        }
        calibration.host.zero_fill.value *= 1e6;
        for (LinkCurve& link : calibration.links) link.alpha_idle.value = link.alpha.value;  // the rest is its launch
        const StepTime quick = part();
        CAPTURE(to_string(method));
        CHECK(quick.seconds < usual.seconds);
        const auto host = static_cast<std::size_t>(Part::host);
        CHECK(quick.parts[host].exposed.value < 0.1 * usual.parts[host].exposed.value + 1e-3);
    }
}

}  // namespace headroom
