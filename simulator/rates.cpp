// SPDX-License-Identifier: Apache-2.0
#include "simulator/rates.hpp"

#include <algorithm>
#include <cmath>

namespace headroom {

namespace {

double real(std::int64_t value) { return static_cast<double>(value); }

std::int64_t tiles(const GemmConstants& constants, std::int64_t m, std::int64_t n) {
    return divide_round_up(m, constants.tile_rows) * divide_round_up(n, constants.tile_columns);
}

/// Rate of the table with the last wave's loss taken out, so that it can be put back for the shape asked for.
double full_wave_rate(const GemmConstants& constants, const GemmPoint& point) {
    return point.rate.value / wave_efficiency(constants, point.m, point.n, point.k);
}

/// Straight line in log x between (x0, y0) and (x1, y1), held outside.
double interpolate(double x0, double y0, double x1, double y1, double x) {
    if (x <= x0 || x0 >= x1) return y0;
    if (x >= x1) return y1;
    return y0 + (y1 - y0) * std::log(x / x0) / std::log(x1 / x0);
}

/// Full-wave rate over log m within the points [first, last) of one width.
double rate_of_width(const GemmConstants& constants, std::size_t first, std::size_t last, double m) {
    std::size_t right = first;
    while (right < last && real(constants.points[right].m) < m) ++right;
    if (right == first) return full_wave_rate(constants, constants.points[first]);
    if (right == last) return full_wave_rate(constants, constants.points[last - 1]);
    const GemmPoint& a = constants.points[right - 1];
    const GemmPoint& b = constants.points[right];
    return interpolate(real(a.m), full_wave_rate(constants, a), real(b.m), full_wave_rate(constants, b), m);
}

}  // namespace

double attention_flops(const Attention& shape) {
    double flops = 4.0 * shape.batch * shape.heads * real(shape.query_len) * real(shape.key_len) * shape.head_dim;
    if (shape.causal) flops *= 0.5;
    if (shape.backward) flops *= 2.5;
    return flops;
}

double attention_rate(const AttentionKernelConstants& kernel, const Attention& shape, int streaming_multiprocessors) {
    const auto& masks = kernel.curves[shape.backward ? 1 : 0];
    const AttentionCurve& asked = masks[shape.causal ? 1 : 0];
    // Both masks share the asymptote; a kernel known under one mask only is taken as equal under the other.
    const AttentionCurve& curve = asked.known() ? asked : masks[shape.causal ? 0 : 1];

    const double length = real(shape.backward ? shape.query_len : shape.key_len);
    double rate = curve.asymptote.value / (1.0 + std::pow(curve.half_length / length, curve.exponent));
    if (curve.fall != 0) rate *= std::pow(length / 65536.0, -curve.fall);

    // Forward splits the queries over blocks, backward the keys.
    const double rows = real(shape.backward ? shape.key_len : shape.query_len);
    const double blocks = std::max(1.0, shape.batch * shape.heads * std::ceil(rows / 128.0));
    const double processors = streaming_multiprocessors;
    // In a single wave the longest tile decides, however many SMs stay idle beside it.
    if (shape.causal && curve.tail > 0) rate /= 1.0 + curve.tail * 2.0 * processors / std::max(blocks, processors);
    rate *= std::min(1.0, blocks / processors);

    if (shape.head_dim <= 64) return rate * kernel.head_dim_64;
    if (shape.head_dim > 128) {
        return rate * interpolate(128, 1.0, 256, kernel.head_dim_256, shape.head_dim);
    }
    return rate * interpolate(64, kernel.head_dim_64, 128, 1.0, shape.head_dim);
}

double attention_seconds(const Calibration& calibration, AttentionKernel kernel, const Attention& shape) {
    const double flops = attention_flops(shape);
    if (flops <= 0) return 0;
    const auto& constants = calibration.attention[static_cast<std::size_t>(kernel)];
    const double rate = attention_rate(constants, shape, calibration.gemm.streaming_multiprocessors);
    return flops / rate + calibration.memory.kernel_start.value;
}

double wave_efficiency(const GemmConstants& constants, std::int64_t m, std::int64_t n, std::int64_t k) {
    const std::int64_t processors = constants.streaming_multiprocessors;
    std::int64_t work = tiles(constants, m, n);
    if (work < processors) {
        // cuBLAS splits long products of few tiles along k, in slices of at least 1024.
        work *= std::clamp<std::int64_t>(k / 1024, 1, divide_round_up(processors, work));
    }
    return real(work) / real(divide_round_up(work, processors) * processors);
}

double gemm_rate(const GemmConstants& constants, std::int64_t m, std::int64_t n, std::int64_t k) {
    // C^T = B^T A^T: the rate depends on the narrow side of the result, whichever it is.
    if (m < n) std::swap(m, n);
    // The table's widths on both sides of n: points [before, first) and [first, last).
    const auto& points = constants.points;
    if (points.empty()) return 0;
    const auto end_of_width = [&](std::size_t from) {
        std::size_t to = from + 1;
        while (to < points.size() && points[to].n == points[from].n) ++to;
        return to;
    };
    std::size_t before = 0;
    std::size_t first = 0;
    std::size_t last = end_of_width(0);
    while (points[first].n < n && last < points.size()) {
        before = first;
        first = last;
        last = end_of_width(first);
    }
    const double width = real(points[first].n);
    double rate = rate_of_width(constants, first, last, real(m));
    if (real(n) < width && first == 0) {
        rate *= real(n) / width;  // narrower than the table: the tile is padded, so the rate falls with the width
    } else if (real(n) < width) {
        rate =
            interpolate(real(points[before].n), rate_of_width(constants, before, first, real(m)), width, rate, real(n));
    }
    return rate * wave_efficiency(constants, m, n, k);
}

/// k of most entries of the tables.
constexpr double epilogue_depth = 4096;

double gemm_seconds(const Calibration& calibration, const Gemm& shape) {
    const double m = real(shape.m), n = real(shape.n), k = real(shape.k);
    if (m * n * k <= 0 || shape.count <= 0) return 0;
    double compute = 2.0 * m * n * k / gemm_rate(calibration.gemm, shape.m, shape.n, shape.k);
    const double reads = shape.adds ? 1 : 0;
    if (calibration.gemm.epilogue.value > 0) {
        const double held = std::min(1.0, k / epilogue_depth);  // by the table's rate
        compute +=
            calibration.gemm.epilogue.value * (1 + reads - held) * 2.0 * m * n / calibration.memory.copy_rate.value;
    }
    const double traffic = 2.0 * (m * k + k * n + (1 + reads) * m * n) / calibration.memory.copy_rate.value;
    return shape.count * (std::max(compute, traffic) + calibration.memory.kernel_start.value);
}

double memory_bound_seconds(const Calibration& calibration, const MemoryBound& op) {
    const MemoryConstants& memory = calibration.memory;
    const double rate = memory.copy_rate.value * memory.share[static_cast<std::size_t>(op.kernel)].value;
    return real(op.read + op.written) / rate + op.count * memory.kernel_start.value;
}

double table_seconds(const std::vector<LinkPoint>& points, double bytes) {
    if (bytes <= 0 || points.empty()) return 0;
    if (bytes <= points.front().bytes) return points.front().seconds * bytes / points.front().bytes;
    if (bytes >= points.back().bytes) return points.back().seconds * bytes / points.back().bytes;
    std::size_t right = 1;
    while (points[right].bytes < bytes) ++right;
    const LinkPoint& a = points[right - 1];
    const LinkPoint& b = points[right];
    return a.seconds * std::pow(b.seconds / a.seconds, std::log(bytes / a.bytes) / std::log(b.bytes / a.bytes));
}

const LinkCurve& link_of(const Calibration& calibration, CollectiveKind kind, int ranks) {
    const auto index = static_cast<std::size_t>(kind);
    for (const LinkCurve& group : calibration.smaller_groups[index]) {
        if (group.ranks == ranks) return group;
    }
    return calibration.links[index];
}

double collective_seconds(const Calibration& calibration, const Collective& op, const GroupShape& group) {
    const AcrossNodes& across = calibration.across_nodes;
    if (op.kind == CollectiveKind::barrier) {
        return calibration.host.barrier.value + (group.crosses() ? across.alpha.value : 0.0);
    }
    const LinkCurve& link = link_of(calibration, op.kind, group.ranks);
    const double bytes = real(op.bytes);
    const double ranks = group.ranks;
    if (op.kind == CollectiveKind::send_recv) {
        if (group.ranks == 1) {
            // A message to oneself is a device copy by NCCL: read and written once.
            return link.alpha.value + 2.0 * bytes / calibration.memory.copy_rate.value;
        }
        const double inside = table_seconds(link.points, bytes);
        // The rank beside a node border sets the pace of the ring.
        if (!group.crosses()) return link.alpha.value + inside;
        return link.alpha.value + across.alpha.value + std::max(inside, bytes / across.nic_rate.value);
    }
    // Every rank keeps its own 1/ranks.
    const double sent = bytes * (ranks - 1.0) / ranks;
    if (!group.crosses()) return link.alpha.value + table_seconds(link.points, sent);
    const double start = link.alpha.value + across.alpha.value;
    if (op.kind == CollectiveKind::all_to_all) {
        // Each rank sends its share for the other nodes through its own NIC while NVLink carries the rest.
        const double inside = bytes * (group.ranks_per_node - 1.0) / ranks;
        const double outside = bytes * (ranks - group.ranks_per_node) / ranks;
        return start + std::max(table_seconds(link.points, inside), outside / across.nic_rate.value);
    }
    return start + std::max(table_seconds(link.points, sent), sent / across.ring_rate.value);
}

double collective_launch_seconds(const Calibration& calibration, CollectiveKind kind) {
    if (kind == CollectiveKind::barrier) return calibration.host.launch.value;
    const LinkCurve& link = calibration.links[static_cast<std::size_t>(kind)];
    return std::max(calibration.host.launch.value, link.alpha_idle.value - link.alpha.value);
}

double copy_seconds(const Calibration& calibration, const Copy& op, int gpus_per_node) {
    const HostConstants& host = calibration.host;
    const double bytes = real(op.bytes);
    if (!op.pinned && op.to_host) return bytes / (op.fresh ? host.pageable_fresh : host.pageable_to_host).value;
    if (!op.pinned) return bytes / host.pageable_to_device.value;
    const double alone = (op.to_host ? host.to_host : host.to_device).value;
    return bytes / (gpus_per_node > 1 ? alone * host.all_gpus.value : alone);
}

double host_work_seconds(const Calibration& calibration, const HostWork& op) {
    switch (op.kind) {
        case HostWork::Kind::tokenise:
            return real(op.amount) * calibration.host.tokenise.value;
        case HostWork::Kind::zero_fill:
            return real(op.amount) / calibration.host.zero_fill.value;
        case HostWork::Kind::other:
            break;
    }
    return real(op.amount) * 1e-9;  // nanoseconds that the schedule names itself
}

}  // namespace headroom
