// SPDX-License-Identifier: Apache-2.0
// Kernels, products and attention of a training step on a GPU against plain arithmetic in double precision.
#define DOCTEST_CONFIG_IMPLEMENT
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <vector>

#include "calibrate/cuda/attention_calls.hpp"
#include "calibrate/cuda/errors.hpp"
#include "calibrate/cuda/product.hpp"
#include "calibrate/cuda/samples.hpp"
#include "calibrate/cuda/schedule_kernels.hpp"

using namespace headroom;

namespace {

using Values = std::vector<double>;
constexpr double one_rounding = 2.5e-3;  // to bf16, relative L2

template <class Element>
class DeviceValues {
 public:
    explicit DeviceValues(std::int64_t count)
        : count_(count), buffer_(count * static_cast<std::int64_t>(sizeof(Element))) {}
    Element* get() const { return buffer_.as<Element>(); }
    operator Element*() const { return get(); }
    DeviceValues& normal(std::uint64_t seed) {
        fill_normal(nullptr, get(), count_, seed);
        return *this;
    }
    DeviceValues& set(const std::vector<Element>& values) {
        check_cuda(cudaMemcpy(get(), values.data(), values.size() * sizeof(Element), cudaMemcpyHostToDevice),
                   "cudaMemcpy");
        return *this;
    }
    DeviceValues& zero() {
        check_cuda(cudaMemset(get(), 0, static_cast<std::size_t>(buffer_.bytes())), "cudaMemset");
        return *this;
    }
    DeviceValues& copy(const DeviceValues& from) {
        check_cuda(cudaMemcpy(get(), from.get(), static_cast<std::size_t>(buffer_.bytes()), cudaMemcpyDeviceToDevice),
                   "cudaMemcpy");
        return *this;
    }
    Values values() const { return download(get(), count_); }
    Values part(std::int64_t first, std::int64_t count) const { return download(get() + first, count); }

 private:
    std::int64_t count_;
    DeviceBuffer buffer_;
};
using Halves = DeviceValues<bf16>;
using Floats32 = DeviceValues<float>;
using Integers = DeviceValues<std::int64_t>;

double error(const Values& result, const Values& expected) {
    ErrorSum sum;
    sum.add(result, expected);
    return sum.relative();
}

std::size_t at(std::int64_t i) { return static_cast<std::size_t>(i); }

std::int64_t free_gib() {
    std::size_t free = 0, total = 0;
    check_cuda(cudaMemGetInfo(&free, &total), "cudaMemGetInfo");
    return static_cast<std::int64_t>(free >> 30);
}

}  // namespace

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
        CHECK(error(sum.values(), expected) < 1e-6);
        CHECK(error(exponent.values(), merged) < 1e-6);
    }
}

TEST_CASE("weights are the same whole from one rank or four, and the rotary table is exact far out") {
    constexpr std::int64_t count = 40'000;
    WeightFill fill{0, {0, 20'000}, 512, 3, 0.02F};
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

TEST_CASE("products: sums over blocks, transposes, and operands of more than 2^31 elements") {
    Products products;
    const auto dot = [](const Values& a, const Values& b) {
        double sum = 0;
        for (std::size_t i = 0; i < a.size(); ++i) sum += a[i] * b[i];
        return sum;
    };
    {
        // C[m,n] = sum over blocks of A[block][m,k] B[n, block k]^T, at odd places of larger tensors.
        constexpr std::int64_t m = 96, n = 72, k = 40, blocks = 3;
        Halves a(blocks * m * k + 8), b(n * blocks * k + 24), c(m * n + 16);
        a.normal(1), b.normal(2);
        const Product what{m,
                           n,
                           k,
                           blocks,
                           {View(0, 16), k, m * k, false},
                           {View(1, 48), blocks * k, k, true},
                           {View(2, 32), n, 0, false}};
        products.run(nullptr, what, a.get() + 8, b.get() + 24, c.get() + 16);
        Values expected;
        for (std::int64_t row = 0; row < m; ++row) {
            for (std::int64_t column = 0; column < n; ++column) {
                double sum = 0;
                for (std::int64_t block = 0; block < blocks; ++block) {
                    sum += dot(a.part(8 + (block * m + row) * k, k), b.part(24 + (column * blocks + block) * k, k));
                }
                expected.push_back(sum);
            }
        }
        CHECK(error(c.part(16, m * n), expected) < 2 * one_rounding);
    }
    if (free_gib() < 30) return;
    constexpr std::int64_t m = 530'000, n = 4096, k = 4096;  // A and C have 2^31 and 24 million elements
    Halves a(m * k), b(n * k), c(m * n);
    a.normal(1), b.normal(2);
    products.run(nullptr, {m, n, k, 1, {{}, k, 0, false}, {{}, k, 0, true}, {{}, n, 0, false}}, a, b, c);
    Values got, expected;
    for (const std::int64_t row : {std::int64_t{0}, m / 2, std::int64_t{524'288}, m - 1}) {
        const Values mine = a.part(row * k, k);
        for (std::int64_t column = 0; column < n; column += 819) {
            got.push_back(c.part(row * n + column, 1).front());
            expected.push_back(dot(mine, b.part(column * k, k)));
        }
    }
    CHECK(error(got, expected) < one_rounding);
    // The gradient of weights sums over as many rows.
    Halves gradient(64 * k);
    products.run(nullptr, {64, k, m, 1, {{}, n, 0, true}, {{}, k, 0, false}, {{}, k, 0, false}}, c, a, gradient);
    check_cuda(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
    CHECK(std::isfinite(dot(gradient.part(63 * k, k), Values(at(k), 1))));
}

TEST_CASE("attention backward of more heads than fit into one call gives each head what it gets alone") {
    Attention shape{32768, 32768, 520, 520, 128, 1, true, true};  // queries: 2^31 and 33 million elements
    if (free_gib() < 70) return;
    REQUIRE(head_slices(shape).size() == 2);
    const std::int64_t width = std::int64_t{shape.heads} * shape.head_dim, count = shape.query_len * width;
    const std::int64_t exponents = shape.heads * shape.query_len;
    Halves q(count), k(count), v(count), out(count), dout(count), dq(count), dk(count), dv(count);
    Floats32 exponent(exponents), accumulator(count), delta(exponents);
    q.normal(1), k.normal(2), v.normal(3), dout.normal(4);
    StreamOwner stream;
    AttentionCalls calls(stream.get());
    const auto bytes = [](auto* address) { return reinterpret_cast<std::byte*>(address); };
    check_cuda(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
    Addresses all{bytes(q.get()), bytes(k.get()), bytes(v.get()), bytes(out.get()), bytes(exponent.get()),
                  nullptr,        nullptr,        nullptr,        nullptr,          nullptr,
                  nullptr,        nullptr};
    Attention forward = shape;
    forward.backward = false;
    calls.run({}, forward, all);
    all = {bytes(q.get()),        bytes(k.get()),           bytes(v.get()),     bytes(out.get()),
           bytes(exponent.get()), bytes(dout.get()),        bytes(dq.get()),    bytes(dk.get()),
           bytes(dv.get()),       bytes(accumulator.get()), bytes(delta.get()), nullptr};
    calls.run({}, shape, all);
    stream.synchronize();

    // The last head again, packed alone.
    const std::int64_t alone = shape.query_len * shape.head_dim;
    const auto last_head = [&](const Halves& from, Halves& to) {
        check_cuda(cudaMemcpy2D(to.get(), at(2 * shape.head_dim), from.get() + width - shape.head_dim, at(2 * width),
                                at(2 * shape.head_dim), at(shape.query_len), cudaMemcpyDeviceToDevice),
                   "cudaMemcpy2D");
    };
    Halves q1(alone), k1(alone), v1(alone), out1(alone), dout1(alone), dq1(alone), dk1(alone), dv1(alone), taken(alone);
    last_head(q, q1), last_head(k, k1), last_head(v, v1), last_head(out, out1), last_head(dout, dout1);
    Attention one = shape;
    one.heads = one.kv_heads = 1;
    float* last_exponent = exponent.get() + exponents - shape.query_len;
    calls.run(
        {}, one,
        {bytes(q1.get()), bytes(k1.get()), bytes(v1.get()), bytes(out1.get()), bytes(last_exponent), bytes(dout1.get()),
         bytes(dq1.get()), bytes(dk1.get()), bytes(dv1.get()), bytes(accumulator.get()), bytes(delta.get()), nullptr});
    stream.synchronize();
    for (const auto& [whole, part] : {std::pair{&dq, &dq1}, {&dk, &dk1}, {&dv, &dv1}}) {
        last_head(*whole, taken);
        CHECK(error(taken.values(), part->values()) < one_rounding);
    }
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
