// SPDX-License-Identifier: Apache-2.0
// Kernels of a training step on a GPU against plain arithmetic in double precision.
#define DOCTEST_CONFIG_IMPLEMENT
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "calibrate/cuda/schedule_kernels.hpp"
#include "tests/cuda/device_values.hpp"

using namespace headroom;

TEST_CASE("the norm and its gradients, without a scale handed on") {
    for (const Shape shape : {Shape{1000, 4096}, Shape{3, 512}, Shape{700, 5120}, Shape{300, 8192}}) {
        CAPTURE(shape.columns);
        const std::int64_t count = shape.elements();
        Halves x(count), w(shape.columns), g(count), out(count), dx(count), dw(shape.columns);
        x.normal(1), w.normal(2), g.normal(3);
        DeviceBuffer scratch(norm_backward_scratch_bytes(shape.columns));
        norm_forward(nullptr, x, w, out, nullptr, shape);
        norm_backward(nullptr, x, w, g, dx, scratch.as<float>(), dw, shape);
        const Values xs = x.values(), ws = w.values(), gs = g.values();
        Values expected(at(count)), expected_dx(at(count)), expected_dw(at(shape.columns), 0);
        for (std::int64_t row = 0; row < shape.rows; ++row) {
            const std::size_t first = at(row * shape.columns);
            double squares = 0, product = 0;
            for (std::size_t i = 0; i < ws.size(); ++i) {
                squares += xs[first + i] * xs[first + i];
                product += gs[first + i] * ws[i] * xs[first + i];
            }
            const auto width = static_cast<double>(shape.columns);
            const double scale = 1 / std::sqrt(squares / width + 1e-5);
            for (std::size_t i = 0; i < ws.size(); ++i) {
                const double unit = xs[first + i] * scale;
                expected[first + i] = unit * ws[i];
                expected_dx[first + i] = scale * (gs[first + i] * ws[i] - unit * scale * product / width);
                expected_dw[i] += gs[first + i] * unit;
            }
        }
        CHECK(error(out.values(), expected) < one_rounding);
        CHECK(error(dx.values(), expected_dx) < one_rounding);
        CHECK(error(dw.values(), expected_dw) < one_rounding);
    }
}

TEST_CASE("gradients of the gate lie over gate and up as well as beside them") {
    constexpr std::int64_t count = 100'000 * 8;
    Halves gate(count), up(count), g(count), dgate(count), dup(count);
    gate.normal(1), up.normal(2), g.normal(3);
    swiglu_backward(nullptr, gate, up, g, dgate, dup, count);
    const Values beside_gate = dgate.values(), beside_up = dup.values();
    const Values x = gate.values(), u = up.values(), d = g.values();
    swiglu_backward(nullptr, gate, up, g, gate, up, count);
    CHECK(gate.values() == beside_gate);
    CHECK(up.values() == beside_up);
    Values expected_gate, expected_up;
    for (std::size_t i = 0; i < x.size(); ++i) {
        const double s = 1 / (1 + std::exp(-x[i]));
        expected_gate.push_back(d[i] * u[i] * s * (1 + x[i] * (1 - s)));
        expected_up.push_back(d[i] * x[i] * s);
    }
    CHECK(error(beside_gate, expected_gate) < one_rounding);
    CHECK(error(beside_up, expected_up) < one_rounding);
}

TEST_CASE("rows of the embedding, and their gradients even where half of all rows share a token") {
    const Shape shape{5000, 4096};
    constexpr std::int64_t vocabulary = 3001;
    std::vector<std::int64_t> tokens;
    for (std::int64_t row = 0; row < shape.rows; ++row) tokens.push_back(row % 2 == 0 ? 7 : row * 37 % 2000);
    tokens[1] = vocabulary - 1;
    tokens[3] = 0;
    Halves table(vocabulary * shape.columns), out(shape.elements()), g(shape.elements()),
        dtable(vocabulary * shape.columns);
    Integers ids(shape.rows);
    table.normal(1), g.normal(2), ids.set(tokens);
    embedding(nullptr, table, ids, out, shape);
    DeviceBuffer lists(embedding_scratch_bytes(shape.rows, vocabulary));
    for (int time = 0; time < 2; ++time) {  // nothing is left from the first
        embedding_backward(nullptr, g, ids, dtable, shape, vocabulary, lists.as<int>());
    }
    const Values rows = table.values(), got = out.values(), gs = g.values();
    Values expected(at(vocabulary * shape.columns), 0);
    bool same = true;
    for (std::int64_t row = 0; row < shape.rows; ++row) {
        const std::int64_t to = tokens[at(row)] * shape.columns;
        for (std::int64_t i = 0; i < shape.columns; ++i) {
            same = same && got[at(row * shape.columns + i)] == rows[at(to + i)];
            expected[at(to + i)] += gs[at(row * shape.columns + i)];
        }
    }
    CHECK(same);
    const Values gradient = dtable.values();
    CHECK(error(gradient, expected) < one_rounding);
    for (std::size_t i = 0; i < gradient.size(); ++i) {
        if (expected[i] == 0 && gradient[i] != 0) FAIL("a token that nobody has got a gradient");
    }
}

TEST_CASE("cross-entropy: losses, and gradients of large and small probabilities") {
    constexpr float weight = 1.0F / 4096;
    for (const std::int64_t columns : {8, 1024, 32000, 65536, 128256, 151936, 163840, 202048}) {
        for (const double spread : {1.0, 6.0}) {
            CAPTURE(columns);
            CAPTURE(spread);
            const Shape shape{150, columns};
            Floats32 wide(shape.elements());
            Halves logits(shape.elements());
            wide.normal(static_cast<std::uint64_t>(columns));
            Values raw = wide.values();
            std::vector<float> scaled;
            for (const double one : raw) scaled.push_back(static_cast<float>(spread * one));
            wide.set(scaled);
            cast_down(nullptr, wide, logits, shape.elements());
            const Values x = logits.values();
            std::vector<std::int64_t> labels;
            for (std::int64_t row = 0; row < shape.rows; ++row) labels.push_back(row * 7919 % columns);
            labels[0] = 0;
            labels[1] = columns - 1;
            Integers ids(shape.rows);
            ids.set(labels);
            Floats32 losses(shape.rows);
            cross_entropy(nullptr, logits, ids, losses, shape, weight);
            const Values gradient = logits.values(), loss = losses.values();
            double worst = 0, worst_loss = 0, worst_label = 0;
            for (std::int64_t row = 0; row < shape.rows; ++row) {
                const std::size_t first = at(row * columns);
                const double top = *std::max_element(x.begin() + static_cast<std::ptrdiff_t>(first),
                                                     x.begin() + static_cast<std::ptrdiff_t>(first) + columns);
                double mass = 0;
                for (std::size_t i = 0; i < at(columns); ++i) mass += std::exp(x[first + i] - top);
                const std::size_t label = at(labels[at(row)]);
                for (std::size_t i = 0; i < at(columns); ++i) {
                    const double expected = std::exp(x[first + i] - top) / mass * weight;
                    if (i == label) {
                        worst_label =
                            std::max(worst_label, std::abs(gradient[first + i] - (expected - weight)) / weight);
                    } else if (x[first + i] > top - 20) {
                        worst = std::max(worst, std::abs(gradient[first + i] / expected - 1));
                    } else {
                        worst = std::max(worst, std::abs(gradient[first + i] - expected) / weight * 1e6);
                    }
                }
                worst_loss = std::max(worst_loss, std::abs(loss[at(row)] - (top + std::log(mass) - x[first + label])));
            }
            CHECK(worst < 5.5e-3);  // 2^-8 is half a place of bf16
            CHECK(worst_label < 4e-3);
            CHECK(worst_loss < 2e-5);
        }
    }
}

TEST_CASE("AdamW over several steps, and sums of losses") {
    constexpr std::int64_t count = 4 * 100'003;
    Floats32 p(count), m(count), v(count), g(count);
    p.normal(1), g.normal(2), m.zero(), v.zero();
    Values expected = p.values(), first(at(count), 0), second(at(count), 0);
    const Values gs = g.values();
    for (int step = 1; step <= 4; ++step) {
        const double first_share = 1 - std::pow(0.9, step), second_share = 1 - std::pow(0.95, step);
        adam_step(nullptr, p, m, v, g, count,
                  {3e-4F, 0.9F, 0.95F, 1e-8F, 0.1F, static_cast<float>(first_share), static_cast<float>(second_share)});
        for (std::size_t i = 0; i < expected.size(); ++i) {
            first[i] = 0.9 * first[i] + 0.1 * gs[i];
            second[i] = 0.95 * second[i] + 0.05 * gs[i] * gs[i];
            const double change = first[i] / first_share / (std::sqrt(second[i] / second_share) + 1e-8);
            expected[i] -= 3e-4 * (change + 0.1 * expected[i]);
        }
    }
    CHECK(error(p.values(), expected) < 1e-6);
    CHECK(error(m.values(), first) < 1e-6);
    CHECK(error(v.values(), second) < 1e-6);

    DeviceBuffer sum(sizeof(double));
    check_cuda(cudaMemset(sum.as(), 0, sizeof(double)), "cudaMemset");
    add_losses(nullptr, g, count, sum.as<double>());
    add_losses(nullptr, g, 1, sum.as<double>());
    double got = 0, all = gs[0];
    check_cuda(cudaMemcpy(&got, sum.as(), sizeof got, cudaMemcpyDeviceToHost), "cudaMemcpy");
    for (const double one : gs) all += one;
    CHECK(got == doctest::Approx(all).epsilon(1e-9));
}

TEST_CASE("partial attention is merged into some rows of a sum") {
    Merge what{};
    what.rows = 300, what.first_row = 100, what.total_rows = 400, what.heads = 6, what.head_dim = 64;
    const std::int64_t width = what.heads * what.head_dim;
    Floats32 sum(what.rows * width), exponent(what.heads * what.total_rows), new_exponent(what.heads * what.rows);
    Halves block(what.rows * width);
    for (const bool is_first : {true, false}) {
        what.first = is_first;
        sum.normal(1), exponent.normal(2), new_exponent.normal(3), block.normal(4);
        Values expected = sum.values(), merged = exponent.values();
        const Values added = block.values(), taken = new_exponent.values();
        for (std::int64_t row = 0; row < what.rows; ++row) {
            for (std::int64_t head = 0; head < what.heads; ++head) {
                double& running = merged[at(head * what.total_rows + what.first_row + row)];
                const double one = taken[at(head * what.rows + row)];
                const double share = is_first ? 1 : 1 / (1 + std::exp(running - one));
                running = is_first ? one : std::log(std::exp(running) + std::exp(one));
                for (std::int64_t i = 0; i < what.head_dim; ++i) {
                    const std::size_t place = at(row * width + head * what.head_dim + i);
                    expected[place] += share * (added[place] - expected[place]);
                }
            }
        }
        merge_rows(nullptr, what, sum, exponent, block, new_exponent);
        CHECK(error(sum.values(), expected) < 2e-6);
        CHECK(error(exponent.values(), merged) < 2e-6);
    }
}

TEST_CASE("weights are the same whole from one rank or four, and the rotary table is exact far out") {
    constexpr std::int64_t count = 40'000;
    WeightFill fill{0, {{0, 512}, {20'000, 20'512}}, 3, 0.02F};
    Floats32 whole(count), parts(count);
    fill_weights(nullptr, whole, count, fill);
    for (int rank = 0; rank < 4; ++rank) {
        fill.first = rank * count / 4;
        fill_weights(nullptr, parts.get() + fill.first, count / 4, fill);
    }
    const Values values = whole.values();
    CHECK(values == parts.values());
    double squares = 0;
    for (std::size_t i = 0; i < values.size(); ++i) {
        if (i < 512 || (i >= 20'000 && i < 20'512)) {
            CHECK(values[i] == 1);
        } else {
            squares += values[i] * values[i];
        }
    }
    CHECK(std::sqrt(squares / (count - 1024)) == doctest::Approx(0.02).epsilon(0.03));

    const std::vector<std::int64_t> positions{0, 1, 1000, 4'194'303};
    Integers places(4);
    places.set(positions);
    DeviceValues<float> table(4 * 64 * 2);
    fill_rotary_table(nullptr, reinterpret_cast<float2*>(table.get()), places, 4, 64, 10000);
    const Values got = table.values();
    double worst = 0;
    for (std::size_t row = 0; row < 4; ++row) {
        for (std::size_t pair = 0; pair < 64; ++pair) {
            const double angle =
                static_cast<double>(positions[row]) * std::pow(10000.0, -static_cast<double>(pair) / 64);
            worst = std::max({worst, std::abs(got[2 * (row * 64 + pair)] - std::cos(angle)),
                              std::abs(got[2 * (row * 64 + pair) + 1] - std::sin(angle))});
        }
    }
    CHECK(worst < 1e-7);
}

int main(int count, char** words) {
    int gpus = 0;
    const cudaError_t status = cudaGetDeviceCount(&gpus);
    if (status != cudaSuccess) {
        std::printf("skipped: %s\n", cudaGetErrorName(status));
        return 0;
    }
    doctest::Context context(count, words);
    return context.run();
}
