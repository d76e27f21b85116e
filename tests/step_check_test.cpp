// SPDX-License-Identifier: Apache-2.0
// A whole training step computes what the formulas say: plain arithmetic against numbers worked by hand, the reference
// against finite differences, the step of every method against the reference. And what is wrong in one is found.
#include <doctest/doctest.h>

#include <fmt/format.h>

#include <bit>
#include <cmath>
#include <numeric>
#include <random>
#include <thread>

#include "calibrate/host_device.hpp"
#include "calibrate/step_check.hpp"
#include "models/error.hpp"
#include "models/training_step.hpp"
#include "tests/run_headroom.hpp"

namespace headroom {
namespace {

/// A device that is alone, and its views on ordinary vectors.
struct LoneDevice {
    HostRanks ranks{1, 1};
    HostDevice device{ranks, 0};

    template <class What, class... Vectors>
    void compute(const What& what, Vectors&... tensors) {
        device.compute(Stream::compute, what, Addresses{reinterpret_cast<std::byte*>(tensors.data())...});
    }
};

using Floats = std::vector<float>;
using Integers = std::vector<std::int64_t>;

void check_near(const Floats& got, const std::vector<double>& wanted) {
    REQUIRE(got.size() == wanted.size());
    for (std::size_t i = 0; i < got.size(); ++i) {
        CAPTURE(i);
        CHECK(static_cast<double>(got[i]) == doctest::Approx(wanted[i]).epsilon(1e-6));
    }
}

TEST_CASE("a norm divides by the root of the mean square and multiplies by the weight") {
    LoneDevice on;
    Floats in{3, 4, 0, 0}, weight{1, 2}, out(4);
    on.compute(Norm{{}, {}, {}, 2, 2}, in, weight, out);
    const double rms = std::sqrt(12.5 + 1e-5);
    check_near(out, {3 / rms, 8 / rms, 0, 0});
}

TEST_CASE("a norm's gradient has no part along the row, and its weight sees the normed rows") {
    LoneDevice on;
    Floats in{3, 4}, weight{1, 1}, gradient{1, 0}, in_gradient(2), weight_gradient(2);
    on.compute(NormBackward{{}, {}, {}, {}, {}, 1, 2}, in, weight, gradient, in_gradient, weight_gradient);
    // Up to the epsilon: (g - n (g n) / 2) / rms with the normed row n = (3, 4) / sqrt(12.5).
    const double rms = std::sqrt(12.5);
    check_near(in_gradient, {0.64 / rms, -0.48 / rms});
    check_near(weight_gradient, {3 / rms, 0});
}

TEST_CASE("a gate passes half of its input at one half of the sigmoid, nothing at zero") {
    LoneDevice on;
    Floats gate{0, 1}, up{5, 3}, out(2);
    on.compute(Gate{{}, {}, {}, 2}, gate, up, out);
    const double share = 1 / (1 + std::exp(-1.0));
    check_near(out, {0, 3 * share});
    Floats gradient{2, 2};
    // Over gate and up themselves, as a schedule may have it.
    on.compute(GateBackward{{}, {}, {}, {}, {}, 2}, gate, up, gradient, gate, up);
    check_near(gate, {2 * 5 * 0.5, 2 * 3 * share * (2 - share)});
    check_near(up, {0, 2 * share});
}

TEST_CASE("sums, rows of a table and the sums of their gradients") {
    LoneDevice on;
    Floats a{1, 2}, b{10, 20}, sum(2);
    on.compute(Sum{{}, {}, {}, 2}, a, b, sum);
    check_near(sum, {11, 22});
    Floats table{1, 2, 3, 4, 5, 6}, out(6);
    Integers tokens{2, 0, 2};
    on.compute(Embedding{{}, {}, {}, 3, 2, 3}, table, tokens, out);
    check_near(out, {5, 6, 1, 2, 5, 6});
    Floats gradient{1, 2, 3, 4, 10, 20}, table_gradient(6, -1);
    on.compute(EmbeddingBackward{{}, {}, {}, 3, 2, 3}, gradient, tokens, table_gradient);
    check_near(table_gradient, {3, 4, 0, 0, 11, 22});
    tokens[1] = 3;
    CHECK_THROWS_WITH_AS(on.compute(Embedding{{}, {}, {}, 3, 2, 3}, table, tokens, out),
                         doctest::Contains("token 3 is not one of 3"), Error);
}

TEST_CASE("two equal logits lose log 2, and their gradients are half the weight") {
    LoneDevice on;
    Floats logits{7, 7, 0, 100}, losses(2);
    Integers labels{1, 1};
    on.compute(CrossEntropy{{}, {}, {}, 2, 2, 0.25F}, logits, labels, losses);
    check_near(losses, {std::log(2.0), 0});
    check_near(logits, {0.125, -0.125, 0, 0});
    CHECK(on.device.take_loss() == doctest::Approx(std::log(2.0)));
    CHECK(on.device.take_loss() == 0);
}

TEST_CASE("the first step of AdamW goes by the sign of the gradient, the second by both") {
    LoneDevice on;
    Floats parameter{2, 2, 2}, first(3), second(3), gradient{0.5, -0.001F, 0};
    const Adam step{{}, {}, {}, {}, 3};
    on.compute(step, parameter, first, second, gradient);
    check_near(parameter, {2 - 3e-4 * (1 + 0.1 * 2), 2 - 3e-4 * (-1 + 0.1 * 2), 2 - 3e-4 * 0.1 * 2});
    check_near(first, {0.05, -1e-4, 0});
    check_near(second, {0.0125, 5e-8, 0});
    for (std::size_t i = 0; i < 3; ++i) {
        const AdamResult reference = first_adam_step(2, static_cast<double>(gradient[i]));
        CHECK(reference.parameter == doctest::Approx(static_cast<double>(parameter[i])));
        CHECK(reference.first_moment == doctest::Approx(static_cast<double>(first[i])));
        CHECK(reference.second_moment == doctest::Approx(static_cast<double>(second[i])));
    }
    const auto before = static_cast<double>(parameter[0]);
    gradient[0] = -0.5;
    on.compute(step, parameter, first, second, gradient);
    const double mean = (0.9 * 0.05 - 0.1 * 0.5) / (1 - 0.81);
    const double square = (0.95 * 0.0125 + 0.05 * 0.25) / (1 - 0.9025);
    CHECK(static_cast<double>(parameter[0]) ==
          doctest::Approx(before - 3e-4 * (mean / std::sqrt(square) + 0.1 * before)).epsilon(1e-7));
}

TEST_CASE("shards are gathered in the order of ranks, and sums of whole tensors are scattered in it") {
    HostRanks ranks(2, 2);
    std::vector<Floats> whole(4, Floats(8)), part(4, Floats(2));
    {
        std::vector<std::jthread> threads;
        for (int rank = 0; rank < 4; ++rank) {
            threads.emplace_back([&, rank] {
                HostDevice device(ranks, rank);
                const auto index = static_cast<std::size_t>(rank);
                const auto bytes = [](Floats& of) { return reinterpret_cast<std::byte*>(of.data()); };
                Floats shard{static_cast<float>(10 * rank), static_cast<float>(10 * rank + 1)};
                device.compute(Stream::all_gather, GatherShards{{}, {}, 2}, {bytes(shard), bytes(whole[index])});
                device.compute(Stream::reduce_scatter, ReduceScatter{{}, {}, 2},
                               {bytes(whole[index]), bytes(part[index])});
            });
        }
    }
    for (std::size_t rank = 0; rank < 4; ++rank) {
        check_near(whole[rank], {0, 1, 10, 11, 20, 21, 30, 31});
        const auto first = static_cast<double>(whole[0][2 * rank]);
        check_near(part[rank], {4 * first, 4 * (first + 1)});
    }
}

/// Small, with unequal widths everywhere: hidden 12, heads 16 wide in all, 8 for keys, ffn 20, 11 tokens.
TransformerShape tiny_model() {
    TransformerShape model;
    model.layers = 2;
    model.hidden = 12;
    model.heads = 4;
    model.kv_heads = 2;
    model.head_dim = 4;
    model.ffn = 20;
    model.vocabulary = 11;
    return model;
}

TransformerShape with(TransformerShape model, QkNorm norm, bool tied) {
    model.qk_norm = norm;
    model.tied_embeddings = tied;
    return model;
}

void check_slopes(const StepReference& reference) {
    std::mt19937 random(3);
    constexpr double step = 2e-5;
    for (const WeightKind& kind : weight_kinds(reference.model)) {
        ModelWeights moved = reference.weights;
        const auto weights = kind.in(moved);
        const auto gradients = kind.in(reference.gradients);
        for (std::size_t block = 0; block < weights.size(); ++block) {
            CAPTURE(kind.name);
            CAPTURE(block);
            const std::vector<double> kept(weights[block].begin(), weights[block].end());
            const auto loss_along = [&](double by, const std::vector<double>& direction) {
                for (std::size_t i = 0; i < kept.size(); ++i) weights[block][i] = kept[i] + by * direction[i];
                return step_loss(reference.model, reference.text, moved);
            };
            const auto check_slope = [&](const std::vector<double>& direction) {
                const double slope = (loss_along(step, direction) - loss_along(-step, direction)) / (2 * step);
                std::copy(kept.begin(), kept.end(), weights[block].begin());
                const double wanted =
                    std::inner_product(direction.begin(), direction.end(), gradients[block].begin(), 0.0);
                CHECK(slope == doctest::Approx(wanted).epsilon(1e-5).scale(0.01));
            };
            for (int i = 0; i < 3; ++i) {
                std::vector<double> one(kept.size());
                one[random() % kept.size()] = 1;
                check_slope(one);
            }
            std::vector<double> all(kept.size());
            for (double& value : all) value = random() % 2 == 0 ? 1 : -1;
            check_slope(all);
        }
    }
}

TEST_CASE("the gradients of the reference are the slopes of its loss, for every kind of weight of every block") {
    for (const QkNorm norm : {QkNorm::none, QkNorm::per_head, QkNorm::full_width}) {
        for (const bool tied : {false, true}) {
            CAPTURE(static_cast<int>(norm));
            CAPTURE(tied);
            const StepReference reference(with(tiny_model(), norm, tied), 9);
            CHECK(weight_kinds(reference.model).size() == (tied ? 11 : 12) + (norm == QkNorm::none ? 0 : 2));
            check_slopes(reference);
        }
    }
}

TEST_CASE("the weights of a check are bf16 numbers of the usual sizes") {
    const StepReference reference(with(tiny_model(), QkNorm::per_head, false), 9);
    const auto check_all = [](const ReferenceValues& values) {
        for (const double value : values) {
            const auto narrow = static_cast<float>(value);
            CHECK(static_cast<double>(narrow) == value);
            CHECK((std::bit_cast<std::uint32_t>(narrow) & 0xffff) == 0);
        }
    };
    for (const ReferenceValues& block : reference.weights.blocks) check_all(block);
    check_all(reference.weights.root);
    for (std::size_t i = 0; i + 1 < 9; ++i) CHECK(reference.text.labels[i] == reference.text.tokens[i + 1]);
    CHECK(reference.loss > std::log(11.0) - 1);
    CHECK(reference.loss < std::log(11.0) + 2);
}

/// Two blocks of 8 query heads on 4 KV heads of 8 over 64 tokens: up to 4 ranks divide all of it.
TransformerShape step_model() {
    TransformerShape model;
    model.layers = 2;
    model.hidden = 64;
    model.heads = 8;
    model.kv_heads = 4;
    model.head_dim = 8;
    model.ffn = 96;
    model.vocabulary = 112;
    return model;
}

TransformerShape normed_model() { return with(step_model(), QkNorm::per_head, true); }

std::vector<CheckCase> all_steps(int ranks) {
    std::vector<CheckCase> cases = step_cases(ranks, step_model(), 64, 4);
    for (CheckCase& one : step_cases(ranks, normed_model(), 64, 4)) cases.push_back(std::move(one));
    return cases;
}

template <class Device>
StepErrors step_errors(const CheckCase& which, const StepReference& reference) {
    HostRanks ranks(which.work.recipe.ulysses, which.work.recipe.ring);
    return check_step(
        which, reference, [&](int rank) { return std::make_unique<Device>(ranks, rank); }, [&] { ranks.give_up(); });
}

TEST_CASE("a step of every method has the loss, the gradients and the update of the reference, on 1, 2 and 4 ranks") {
    const StepReference plain(step_model(), 64), normed(normed_model(), 64);
    for (const int ranks : {1, 2, 4}) {
        for (const CheckCase& which : all_steps(ranks)) {
            CAPTURE(ranks);
            CAPTURE(which.name);
            const StepReference& reference = which.work.model.tied_embeddings ? normed : plain;
            for (const NamedError& result : step_errors<HostDevice>(which, reference).named()) {
                CAPTURE(result.name);
                CHECK(result.error < 2e-6);
            }
        }
    }
}

TEST_CASE("the steps of four ranks are all the ways to divide them, with their inputs here and there") {
    std::vector<std::string> names;
    for (const CheckCase& which : all_steps(4)) {
        CHECK(not_described(which.work) == "");
        names.push_back(which.name);
    }
    const std::string on_host = ", inputs on host";
    std::vector<std::string> wanted;
    for (const char* name : {"step ring", "step usp 2x2", "step ulysses", "step upipe, U = 4 of 8",
                             "step upipe, U = 8 of 8", "step fpdt, 2 chunks", "step fpdt, 2 chunks offloaded"}) {
        wanted.push_back(name);
        wanted.push_back(name + on_host);
        if (name == std::string("step ulysses")) wanted.push_back("step ulysses, no checkpoints");
    }
    for (const char* name :
         {"ring", "usp 2x2", "ulysses", "upipe, U = 4 of 8", "fpdt, 2 chunks", "fpdt, 2 chunks offloaded"}) {
        wanted.push_back(fmt::format("step {}, QK norm, tied", name));
    }
    CHECK(names == wanted);
}

/// Keeps its own gradients where it should have the sum.
struct Unreduced : HostDevice {
    Unreduced(HostRanks& ranks, int number) : HostDevice(ranks, number), rank(number) {}
    using HostDevice::compute;
    void compute(Stream, const ReduceScatter& what, const Addresses& at) override {
        const std::int64_t bytes = 4 * what.elements;
        std::copy_n(at[0] + rank * bytes, bytes, at[1]);
    }
    int rank;
};

/// Does not let the parameters decay.
struct Undecayed : HostDevice {
    using HostDevice::compute;
    using HostDevice::HostDevice;
    void compute(Stream stream, const Adam& what, const Addresses& at) override {
        auto* parameters = reinterpret_cast<float*>(at[0]);
        const Floats before(parameters, parameters + what.elements);
        HostDevice::compute(stream, what, at);
        for (const float value : before) *parameters++ += static_cast<float>(3e-5 * static_cast<double>(value));
    }
};

/// Forgets the gradients of the norms' weights.
struct Normless : HostDevice {
    using HostDevice::compute;
    using HostDevice::HostDevice;
    void compute(Stream stream, const NormBackward& what, const Addresses& at) override {
        Floats elsewhere(static_cast<std::size_t>(what.width));
        Addresses moved = at;
        moved[4] = reinterpret_cast<std::byte*>(elsewhere.data());
        HostDevice::compute(stream, what, moved);
    }
};

TEST_CASE("a step that computes something else is caught, by the result that it spoils") {
    const StepReference reference(step_model(), 64);
    const CheckCase ring = step_cases(2, step_model(), 64, 4).front();
    const StepErrors unreduced = step_errors<Unreduced>(ring, reference);
    CHECK(unreduced.loss < 1e-6);
    for (const NamedError& gradient : unreduced.gradients) CHECK(gradient.error > 0.1);
    CHECK(unreduced.update < 1e-6);
    const StepErrors undecayed = step_errors<Undecayed>(ring, reference);
    CHECK(undecayed.largest_gradient() < 1e-6);
    CHECK(undecayed.update > 0.01);
    CHECK(undecayed.moments < 1e-6);
    const StepErrors normless = step_errors<Normless>(ring, reference);
    CHECK(std::isnan(normless.largest_gradient()));
    for (const NamedError& gradient : normless.gradients) {
        CAPTURE(gradient.name);
        const bool of_norm = gradient.name.find("norm") != std::string::npos;
        CHECK(std::isnan(gradient.error) == of_norm);
    }
}

TEST_CASE("streams of every step wait for each other: without their waits it is caught") {
    for (const int ranks : {1, 2}) {
        for (const CheckCase& which : all_steps(ranks)) {
            CAPTURE(ranks);
            CAPTURE(which.name);
            Workload work = which.work;
            if (work.recipe.ring > 1) work.ring_rank = 1;
            Schedule schedule;
            build_described_step(work, schedule);
            for (Event& event : schedule.events) {
                if (event.kind == EventKind::wait) event.id = schedule.syncs;  // never recorded
            }
            struct Careless : LoneDevice {
                void run(const Schedule& of, int sharing) {
                    Interpreter interpreter(of, 4, sharing, device);
                    for (const Segment& segment : of.segments) interpreter.run(segment);
                }
            };
            CHECK_THROWS_WITH_AS(Careless().run(schedule, ranks), doctest::Contains("does not wait for"), Error);
        }
    }
}

TEST_CASE("headroom calibrate check runs steps behind attention, and one rank alone only once") {
    const Outcome both =
        run_headroom({"calibrate", "check", "--on-host", "--ranks", "1", "--only", "*one rank", "--only", "step ring"});
    CHECK(both.status == 0);
    CHECK(contains(both.out, "1 of 1 cases compute attention and its gradients"));
    CHECK(contains(both.out, "1 of 1 cases compute the loss, the gradients and the update of a training step"));
    const TemporaryDirectory directory;
    const std::string file = directory.path("check.jsonl");
    const Outcome steps =
        run_headroom({"calibrate", "check", "--on-host", "--ranks", "2", "--only", "step u*", "-o", file});
    CHECK(steps.status == 0);
    CHECK(!contains(steps.out, "attention over"));
    CHECK(contains(steps.out, "7 of 7 cases"));
    CHECK(contains(steps.out, "blocks with QK norm and tied embeddings"));
    CHECK(contains(steps.out, "2 of 2 cases"));
    const std::string text = read_file(file);
    CHECK(contains(text, "\"of\":\"training step\""));
    CHECK(contains(text, "\"gradient_of_wq\""));
    CHECK(contains(text, "\"gradient_of_query_norm\""));
}

}  // namespace
}  // namespace headroom
