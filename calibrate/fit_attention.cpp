// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <Eigen/Dense>
#include <algorithm>
#include <cmath>
#include <optional>

#include "calibrate/fit.hpp"
#include "models/error.hpp"
#include "simulator/rates.hpp"

namespace headroom {
namespace {

/// Blocks of 128 rows that one launch has: forward splits the queries, backward the keys.
double blocks_of(const Attention& shape) {
    const std::int64_t rows = shape.backward ? shape.key_len : shape.query_len;
    return static_cast<double>(shape.batch) * shape.heads * std::ceil(static_cast<double>(rows) / 128.0);
}

/// Below this many blocks for each multiprocessor the rate hangs on how the last ones happen to fall, which no curve
/// over the length knows; a training step has none so small.
constexpr double least_waves = 3;

double length_of(const Attention& shape) {
    return static_cast<double>(shape.backward ? shape.query_len : shape.key_len);
}

/// What the simulator's law makes of R = 1 and s0 = 0: everything but the two linear unknowns.
double unit_rate(const Attention& shape, double fall, double tail, int processors) {
    AttentionKernelConstants kernel;
    AttentionCurve& curve = kernel.curves[shape.backward ? 1 : 0][shape.causal ? 1 : 0];
    curve.asymptote.value = 1;
    curve.fall = fall;
    curve.tail = tail;
    return attention_rate(kernel, shape, processors);
}

struct Linear {
    double inverse_rate = 0, inverse_slope = 0;  // 1/R, s0^p/R
    double squares = 0;
};

/// unit / rate = 1/R + (s0^p / R) s^-p, each line scaled by rate / unit so that relative errors are summed.
std::optional<Linear> solve(const std::vector<AttentionPoint>& points, const std::vector<double>& units, double p) {
    const auto count = static_cast<Eigen::Index>(points.size());
    Eigen::MatrixX2d lines(count, 2);
    for (Eigen::Index i = 0; i < count; ++i) {
        const auto at = static_cast<std::size_t>(i);
        const double weight = points[at].rate / units[at];
        lines(i, 0) = weight;
        lines(i, 1) = weight * std::pow(length_of(points[at].shape) / 1024.0, -p);
    }
    const Eigen::VectorXd ones = Eigen::VectorXd::Ones(count);
    Eigen::Vector2d x = lines.colPivHouseholderQr().solve(ones);
    if (x(1) < 0) {  // a rate that falls with the length is the business of `fall`
        x(1) = 0;
        x(0) = lines.col(0).dot(ones) / lines.col(0).squaredNorm();
    }
    if (!(x(0) > 0)) return std::nullopt;
    return Linear{x(0), x(1), (lines * x - ones).squaredNorm()};
}

AttentionCurve curve_of(const Linear& linear, double p, double fall, double tail) {
    AttentionCurve curve;
    curve.asymptote.value = 1 / linear.inverse_rate;
    curve.half_length = 1024.0 * std::pow(linear.inverse_slope / linear.inverse_rate, 1 / p);
    curve.exponent = p;
    curve.fall = fall;
    curve.tail = tail;
    return curve;
}

struct Grid {
    double p, fall, tail;
};

/// Below the lengths that are fitted, twice the length must not take less time, even where the blocks are too few for
/// the processors and their number doubles the rate, too.
bool shorter_is_faster(const AttentionCurve& curve) {
    constexpr double shortest = 1024;
    const auto rate = [&](double length) { return 1 / (1 + std::pow(curve.half_length / length, curve.exponent)); };
    return rate(2 * shortest) < 1.98 * rate(shortest);
}

std::vector<double> units_of(const std::vector<AttentionPoint>& points, double fall, double tail, int processors) {
    std::vector<double> units;
    for (const AttentionPoint& point : points) units.push_back(unit_rate(point.shape, fall, tail, processors));
    return units;
}

AttentionCurve best_curve(const std::vector<AttentionPoint>& points, int processors, Grid& at) {
    const bool causal = points.front().shape.causal;
    double least = INFINITY;
    AttentionCurve best;
    for (int fall = 0; fall <= 10; ++fall) {
        for (int tail = 0; tail <= (causal ? 20 : 0); ++tail) {
            const Grid grid{0, fall * 0.01, tail * 0.05};
            const std::vector<double> units = units_of(points, grid.fall, grid.tail, processors);
            for (int step = 0; step <= 100; ++step) {
                const double p = 1.0 + step * 0.01;
                const std::optional<Linear> linear = solve(points, units, p);
                if (!linear || linear->squares >= least) continue;
                const AttentionCurve curve = curve_of(*linear, p, grid.fall, grid.tail);
                if (!shorter_is_faster(curve)) continue;
                least = linear->squares;
                at = {p, grid.fall, grid.tail};
                best = curve;
            }
        }
    }
    return best;
}

double error_of(const AttentionCurve& curve, const AttentionPoint& point, int processors) {
    AttentionKernelConstants kernel;
    kernel.curves[point.shape.backward ? 1 : 0][point.shape.causal ? 1 : 0] = curve;
    return attention_rate(kernel, point.shape, processors) / point.rate - 1;
}

std::vector<double> sizes_of_errors(const AttentionCurve& curve, const std::vector<AttentionPoint>& points,
                                    int processors) {
    std::vector<double> errors;
    for (const AttentionPoint& point : points) errors.push_back(std::abs(error_of(curve, point, processors)));
    return errors;
}

/// The grid point stays, the linear unknowns are found without the point that is then predicted.
double leave_one_out(const std::vector<AttentionPoint>& points, int processors, const Grid& grid) {
    std::vector<double> errors;
    for (std::size_t i = 0; i < points.size(); ++i) {
        std::vector<AttentionPoint> rest = points;
        rest.erase(rest.begin() + static_cast<std::ptrdiff_t>(i));
        const auto linear = solve(rest, units_of(rest, grid.fall, grid.tail, processors), grid.p);
        if (!linear) continue;
        const AttentionCurve curve = curve_of(*linear, grid.p, grid.fall, grid.tail);
        errors.push_back(std::abs(error_of(curve, points[i], processors)));
    }
    return quantile(errors, 0.5);
}

}  // namespace

CurveFit fit_attention(const std::vector<AttentionPoint>& all, int processors) {
    constexpr std::size_t fewest = 4;
    if (all.size() < fewest) {
        throw Error(fmt::format("{} attention probes of one direction and mask are too few for a curve, {} are needed",
                                all.size(), fewest),
                    all.empty() ? "" : all.front().name, "run more of the attention probes");
    }
    std::vector<AttentionPoint> points;
    for (const AttentionPoint& point : all) {
        if (blocks_of(point.shape) >= least_waves * processors) points.push_back(point);
    }
    if (points.size() < fewest) points = all;
    // In one order, whatever the files' was: sums of floating point depend on it.
    std::sort(points.begin(), points.end(), [](const auto& a, const auto& b) { return a.name < b.name; });
    CurveFit fit;
    Grid grid{};
    fit.curve = best_curve(points, processors, grid);
    // A point further off than the others' spread explains, and by more than any clock does, is named and left out.
    const std::vector<double> errors = sizes_of_errors(fit.curve, points, processors);
    const double limit = std::max(0.15, 6 * quantile(errors, 0.5));
    std::vector<AttentionPoint> kept;
    for (std::size_t i = 0; i < points.size(); ++i) {
        if (errors[i] > limit) {
            fit.residuals.outliers.push_back(fmt::format("{}: {:.0f} % off", points[i].name, 100 * errors[i]));
        } else {
            kept.push_back(points[i]);
        }
    }
    if (!fit.residuals.outliers.empty() && kept.size() >= fewest) {
        points = kept;
        fit.curve = best_curve(points, processors, grid);
    }
    const std::vector<double> left = sizes_of_errors(fit.curve, points, processors);
    fit.residuals.median = quantile(left, 0.5);
    fit.residuals.worst = quantile(left, 1);
    fit.residuals.points = points.size();
    fit.residuals.leave_one_out = leave_one_out(points, processors, grid);

    const auto [shortest, longest] =
        std::minmax_element(points.begin(), points.end(),
                            [](const auto& a, const auto& b) { return length_of(a.shape) < length_of(b.shape); });
    fit.curve.shortest = static_cast<std::int64_t>(length_of(shortest->shape));
    fit.curve.longest = static_cast<std::int64_t>(length_of(longest->shape));
    // Two thirds of the errors lie within 1.5 medians. Beside that, GPUs of one kind differ: under the same power cap
    // two H200 of one host run these kernels 3 to 6 % apart (measurements/h200x2-lean-runs-2026-11-30).
    const double spread = std::max(0.05, 1.5 * std::max(fit.residuals.median, fit.residuals.leave_one_out));
    Constant& rate = fit.curve.asymptote;
    rate.low = rate.value * (1 - spread);
    rate.high = rate.value * (1 + spread);
    rate.source = Source::fitted;
    return fit;
}

}  // namespace headroom
