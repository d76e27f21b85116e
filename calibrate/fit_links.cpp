// SPDX-License-Identifier: Apache-2.0
// Collectives: start-up, rate and table of each kind and group size, inside a node and across nodes.
#include <fmt/format.h>

#include <Eigen/Dense>
#include <algorithm>
#include <cmath>

#include "calibrate/fit_parts.hpp"
#include "simulator/rates.hpp"

namespace headroom {
namespace {

/// One size of one kind and group; a second for each session that measured it.
struct Size {
    double bytes;  ///< sent by one GPU
    double seconds;
    std::string name;
};

struct Group {
    std::vector<Size> full;  ///< by bytes
    std::vector<Size> idle;
};

struct GroupKey {
    int kind, nodes, ranks;
    auto operator<=>(const GroupKey&) const = default;
};

std::map<GroupKey, Group> groups_of(const Records& records) {
    std::map<GroupKey, Group> groups;
    for (const auto& [name, same] : records) {
        if (same.front()["kind"] != "collective") continue;
        const Json& settings = same.front()["settings"];
        const auto found = std::find(link_names.begin(), link_names.end(), settings.at("collective"));
        if (found == link_names.end()) continue;
        const GroupKey key{static_cast<int>(found - link_names.begin()), settings.value("nodes", 1),
                           settings.at("ranks")};
        const Size size{settings.at("bytes_sent"), seconds_of(same), name};
        (settings.at("stream") == "idle" ? groups[key].idle : groups[key].full).push_back(size);
    }
    for (auto& [key, group] : groups) {
        for (auto* sizes : {&group.full, &group.idle}) {
            std::sort(sizes->begin(), sizes->end(), [](const Size& a, const Size& b) { return a.bytes < b.bytes; });
        }
    }
    return groups;
}

/// Log-log between the neighbours, the law the simulator reads the table by.
double between(const Size& a, const Size& b, double bytes) {
    return table_seconds({{a.bytes, a.seconds}, {b.bytes, b.seconds}}, bytes);
}

/// Each inner size predicted from its neighbours.
std::vector<double> left_out_errors(const std::vector<Size>& sizes) {
    std::vector<double> errors;
    for (std::size_t i = 1; i + 1 < sizes.size(); ++i) {
        errors.push_back(std::abs(between(sizes[i - 1], sizes[i + 1], sizes[i].bytes) / sizes[i].seconds - 1));
    }
    return errors;
}

/// What alpha + bytes / rate alone would make of the sizes: relative least squares.
Residuals straight_line(const std::vector<Size>& sizes) {
    Eigen::MatrixX2d lines(static_cast<Eigen::Index>(sizes.size()), 2);
    for (std::size_t i = 0; i < sizes.size(); ++i) {
        lines(static_cast<Eigen::Index>(i), 0) = 1 / sizes[i].seconds;
        lines(static_cast<Eigen::Index>(i), 1) = sizes[i].bytes / sizes[i].seconds;
    }
    const Eigen::VectorXd ones = Eigen::VectorXd::Ones(lines.rows());
    const Eigen::VectorXd off = lines * lines.colPivHouseholderQr().solve(ones) - ones;
    std::vector<double> errors;
    for (Eigen::Index i = 0; i < off.size(); ++i) errors.push_back(std::abs(off(i)));
    Residuals result;
    result.median = quantile(errors, 0.5);
    result.worst = quantile(errors, 1);
    return result;
}

/// A size further from its neighbours' line than protocol steps are is named and left out, the worst first.
void drop_outliers(std::vector<Size>& sizes, std::vector<std::string>& outliers) {
    constexpr double limit = 0.25;  // steps between NCCL's protocols reach 11 % on H200
    while (sizes.size() > 4) {
        const std::vector<double> errors = left_out_errors(sizes);
        const auto worst = std::max_element(errors.begin(), errors.end());
        if (*worst <= limit) return;
        // Not the neighbour of a bad point: leaving out the bad one must make the rest agree better.
        std::size_t best = 1;
        double least = INFINITY;
        for (std::size_t i = 1; i + 1 < sizes.size(); ++i) {
            std::vector<Size> rest = sizes;
            rest.erase(rest.begin() + static_cast<std::ptrdiff_t>(i));
            const double left = quantile(left_out_errors(rest), 1);
            if (left < least) {
                least = left;
                best = i;
            }
        }
        outliers.push_back(fmt::format("{}: {:.0f} % off its neighbours", sizes[best].name, 100 * errors[best - 1]));
        sizes.erase(sizes.begin() + static_cast<std::ptrdiff_t>(best));
    }
}

/// Where the line through the two smallest sizes meets no bytes.
double start_up(const std::vector<Size>& sizes) {
    const Size &a = sizes[0], &b = sizes[1];
    const double meets = a.seconds - a.bytes * (b.seconds - a.seconds) / (b.bytes - a.bytes);
    return std::clamp(meets, 1e-6, 0.95 * a.seconds);
}

LinkFit fit_link(const GroupKey& key, Group group, const std::string& label) {
    LinkFit fit;
    fit.kind = static_cast<CollectiveKind>(key.kind);
    fit.nodes = key.nodes;
    drop_outliers(group.full, fit.residuals.outliers);
    const std::vector<Size>& sizes = group.full;
    fit.residuals.points = sizes.size();
    const std::vector<double> errors = left_out_errors(sizes);
    fit.residuals.leave_one_out = quantile(errors, 0.5);
    fit.residuals.worst = quantile(errors, 1);
    fit.line = straight_line(sizes);

    LinkCurve& curve = fit.curve;
    curve.ranks = key.ranks;
    const double alpha = start_up(sizes);
    curve.alpha = measured({alpha}, 0.3, fmt::format("{}, full queue", label));
    double last = 0;
    for (const Size& size : sizes) {
        last = std::max(last, size.seconds - alpha);  // more bytes never take less time
        curve.points.push_back({size.bytes, last});
    }
    const LinkPoint& end = curve.points.back();
    curve.rate = measured({end.bytes / end.seconds}, std::max(0.05, 1.5 * fit.residuals.leave_one_out),
                          fmt::format("{}, {}", label, binary_size(static_cast<std::int64_t>(end.bytes))));
    if (!group.idle.empty()) {
        const Size& idle = group.idle.front();
        const double start = std::max(idle.seconds - table_seconds(curve.points, idle.bytes), 1.05 * alpha);
        curve.alpha_idle = measured({start}, 0.3, fmt::format("{}, idle stream, C++: Python adds to it", label));
    }
    return fit;
}

}  // namespace

void fit_links(const Records& records, const std::string& label, FitResult& result) {
    for (auto& [key, group] : groups_of(records)) {
        if (group.full.size() < 4) {
            result.left_out.push_back(fmt::format("links.{} of {}: {} sizes are too few",
                                                  link_names[static_cast<std::size_t>(key.kind)], key.ranks,
                                                  group.full.size()));
            continue;
        }
        result.links.push_back(fit_link(key, group, label));
    }
    // Across nodes: what is left of the largest messages once NVLink has its part.
    std::vector<double> nic, ring, alpha;
    for (const LinkFit& fit : result.links) {
        if (fit.nodes == 1) continue;
        const double sent = fit.curve.points.back().bytes, seconds = fit.curve.points.back().seconds;
        const double ranks = fit.curve.ranks, per_node = ranks / fit.nodes;
        if (fit.kind == CollectiveKind::all_to_all) nic.push_back(sent * (ranks - per_node) / (ranks - 1) / seconds);
        if (fit.kind == CollectiveKind::send_recv) nic.push_back(sent / seconds);
        if (fit.kind == CollectiveKind::all_gather || fit.kind == CollectiveKind::reduce_scatter) {
            ring.push_back(sent / seconds);
        }
        for (const LinkFit& inside : result.links) {
            if (inside.nodes != 1 || inside.kind != fit.kind) continue;
            alpha.push_back(std::max(fit.curve.alpha.value - inside.curve.alpha.value, 1e-6));
        }
    }
    if (!nic.empty()) result.nic_rate = measured(nic, 0.05, label + ", across nodes");
    if (!ring.empty()) result.ring_rate = measured(ring, 0.1, label + ", across nodes");
    if (!alpha.empty()) result.across_alpha = measured(alpha, 0.3, label + ", across nodes");
}

void fit_overlaps(const Records& records, const std::string& label, FitResult& result) {
    std::vector<double> exposed[2], shares;  // by what was launched first: attention, collective
    for (const auto& [name, same] : records) {
        if (same.front()["kind"] != "overlap") continue;
        const bool collective_first = same.front()["settings"].at("first") == "collective";
        for (const Json& record : same) {
            const Json& notes = record.at("notes");
            const double attention = notes.at("attention_alone_seconds"), other = notes.at("collective_alone_seconds");
            const double both = record.at("seconds").at("median");
            const double hidden_all = std::max(attention, other);
            exposed[collective_first ? 1 : 0].push_back(
                std::max((both - hidden_all) / std::min(attention, other), 0.001));
            if (!collective_first) continue;
            // Beside the collective the attention went on with what multiprocessors were left.
            const double beside = notes.at("attention_beside_seconds");
            const double together = std::min<double>(beside, notes.at("collective_beside_seconds"));
            shares.push_back(std::max((beside - attention) / together, 0.001));
        }
    }
    if (exposed[0].empty() || exposed[1].empty()) return;
    result.exposed_attention_first = measured(exposed[0], 0.03, label + ", cuDNN beside NCCL");
    result.exposed_collective_first = measured(exposed[1], 0.03, label + ", cuDNN beside NCCL");
    result.collective_share = measured(shares, 0.03, label + ", by what attention lost beside NCCL");
}

void fit_device_memory(const std::vector<ProbeFile>& files, const Records& records, FitResult& result) {
    for (const ProbeFile& file : files) {
        result.memory.context =
            std::max<std::int64_t>(result.memory.context, file.provenance.value("context_bytes", std::int64_t{0}));
    }
    for (const auto& [name, same] : records) {
        if (same.front()["kind"] != "collective_memory") continue;
        for (const Json& record : same) {
            const Json& bytes = record.at("notes").at("device_bytes");
            const int ranks = record.at("settings").at("ranks");
            if (!bytes.contains("communicators") || ranks < result.memory.ranks) continue;  // of the largest group
            DeviceMemoryFit& memory = result.memory;
            if (ranks > memory.ranks) memory = {memory.context, ranks, 0, 0, 0};
            for (const Json& one : bytes.at("communicators")) {
                const std::int64_t start = one.at("initialisation");
                if (one.at("use") == "all ranks") {
                    const std::int64_t first = one.at("first_all_gather").get<std::int64_t>() +
                                               one.at("first_reduce_scatter").get<std::int64_t>();
                    memory.communicator = std::max(memory.communicator, start + first);
                } else if (one.at("use") == "ulysses") {
                    memory.group = std::max(memory.group, start);
                    memory.peer_buffer =
                        std::max(memory.peer_buffer, one.at("first_all_to_all").get<std::int64_t>() / (ranks - 1));
                }
            }
        }
    }
}

}  // namespace headroom
