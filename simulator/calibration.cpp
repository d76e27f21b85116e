// SPDX-License-Identifier: Apache-2.0
#include "simulator/calibration.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

#include "models/error.hpp"

namespace headroom {

namespace {

constexpr ConstantUnit flops{"TFLOP/s", 1e12}, rate{"GB/s", 1e9}, time{"us", 1e-6}, share{"ratio", 1};

/// Calls visit(name, unit, constant) for every constant there is, optional ones only when given.
template <class Calibrated, class Visit>
void for_each_constant(Calibrated& calibration, Visit&& visit) {
    for (std::size_t kernel = 0; kernel < calibration.attention.size(); ++kernel) {
        for (std::size_t backward = 0; backward < 2; ++backward) {
            for (std::size_t causal = 0; causal < 2; ++causal) {
                auto& curve = calibration.attention[kernel].curves[backward][causal];
                if (!curve.known()) continue;
                const std::string name = std::string("attention.") + std::string(attention_kernel_names[kernel]);
                visit(name + (backward ? ".backward" : ".forward") + (causal ? ".causal" : ".full"), flops,
                      curve.asymptote);
            }
        }
    }
    for (std::size_t kernel = 0; kernel < calibration.attention.size(); ++kernel) {
        const std::string name = std::string("attention.") + std::string(attention_kernel_names[kernel]) + ".exposed";
        auto& constants = calibration.attention[kernel];
        if (constants.exposed_collective_first.value > 0) {
            visit(name + ".collective_first", share, constants.exposed_collective_first);
        }
        if (constants.exposed_attention_first.value > 0) {
            visit(name + ".attention_first", share, constants.exposed_attention_first);
        }
    }
    for (auto& point : calibration.gemm.points) {
        visit("gemm.m" + std::to_string(point.m) + ".n" + std::to_string(point.n) + ".k" + std::to_string(point.k),
              flops, point.rate);
    }
    visit("memory.copy_rate", rate, calibration.memory.copy_rate);
    for (std::size_t i = 0; i < calibration.memory.share.size(); ++i) {
        visit(std::string("memory.share.") + std::string(memory_kernel_names[i]), share, calibration.memory.share[i]);
    }
    visit("memory.kernel_start", time, calibration.memory.kernel_start);
    for (std::size_t i = 0; i < calibration.links.size(); ++i) {
        auto& link = calibration.links[i];
        const std::string name = std::string("links.") + std::string(link_names[i]);
        visit(name + ".alpha", time, link.alpha);
        visit(name + ".alpha_idle", time, link.alpha_idle);
        visit(name + ".rate", rate, link.rate);
        for (auto& group : calibration.smaller_groups[i]) {
            const std::string of = name + ".of" + std::to_string(group.ranks);
            visit(of + ".alpha", time, group.alpha);
            visit(of + ".alpha_idle", time, group.alpha_idle);
            visit(of + ".rate", rate, group.rate);
        }
    }
    auto& across = calibration.across_nodes;
    visit("across_nodes.alpha", time, across.alpha);
    visit("across_nodes.nic_rate", rate, across.nic_rate);
    visit("across_nodes.ring_rate", rate, across.ring_rate);
    auto& host = calibration.host;
    visit("host.to_host", rate, host.to_host);
    visit("host.to_device", rate, host.to_device);
    visit("host.all_gpus", share, host.all_gpus);
    visit("host.pageable_fresh", rate, host.pageable_fresh);
    visit("host.pageable_to_host", rate, host.pageable_to_host);
    visit("host.pageable_to_device", rate, host.pageable_to_device);
    visit("host.zero_fill", rate, host.zero_fill);
    visit("host.tokenise", time, host.tokenise);
    visit("host.launch", time, host.launch);
    visit("host.after_wait", time, host.after_wait);
    visit("host.barrier", time, host.barrier);
    visit("collective_share", share, calibration.collective_share);
}

void scale(Constant& constant, double factor) {
    constant.value *= factor;
    constant.low *= factor;
    constant.high *= factor;
}

/// 1 where either machine does not have the thing at all: there is nothing to scale by.
double ratio(double to, double from) { return to > 0 && from > 0 ? to / from : 1.0; }

}  // namespace

Calibration derive(const Calibration& from, const Cluster& to, double doubt) {
    Calibration result = from;
    result.name = to.name + " (derived from " + from.name + ")";
    result.kind = "derived";
    result.machines = {to.name};
    result.architecture = to.architecture;

    const double compute = ratio(to.peak_bf16.value, from.datasheet.peak_bf16);
    const double memory = ratio(to.memory_bandwidth.value, from.datasheet.memory_bandwidth);
    const double nvlink = ratio(to.nvlink_bandwidth.value, from.datasheet.nvlink);
    const double pcie = ratio(to.pcie_bandwidth.value, from.datasheet.pcie);
    const double nic = ratio(to.nic_bandwidth.value, from.datasheet.nic);
    result.datasheet = {to.peak_bf16.value, to.memory_bandwidth.value, to.nvlink_bandwidth.value,
                        to.pcie_bandwidth.value, to.nic_bandwidth.value};

    for (auto& kernel : result.attention) {
        for (auto& direction : kernel.curves) {
            for (auto& curve : direction) scale(curve.asymptote, compute);
        }
    }
    for (auto& point : result.gemm.points) scale(point.rate, compute);
    scale(result.memory.copy_rate, memory);
    const auto scale_link = [&](LinkCurve& link) {
        scale(link.rate, nvlink);
        for (auto& point : link.points) point.seconds /= nvlink;
    };
    for (auto& link : result.links) scale_link(link);
    for (auto& groups : result.smaller_groups) std::for_each(groups.begin(), groups.end(), scale_link);
    scale(result.across_nodes.nic_rate, nic);
    scale(result.across_nodes.ring_rate, nic);
    scale(result.host.to_host, pcie);
    scale(result.host.to_device, pcie);

    const std::string note = "carried over from " + from.name + " by datasheet ratio: ";
    for_each_constant(result, [&](const std::string&, const ConstantUnit&, Constant& constant) {
        constant.low = std::min(constant.low, constant.value * (1.0 - doubt));
        constant.high = std::max(constant.high, constant.value * (1.0 + doubt));
        if (constant.source != Source::assumed) constant.source = Source::derived;
        constant.reference = note + constant.reference;
    });
    return result;
}

std::vector<NamedConstant> constants_of(const Calibration& calibration) {
    std::vector<NamedConstant> list;
    for_each_constant(calibration, [&](std::string name, const ConstantUnit& unit, const Constant& constant) {
        list.push_back({std::move(name), unit, constant});
    });
    return list;
}

void check(const Calibration& calibration) {
    const auto refuse = [&](const std::string& where, const std::string& what) {
        throw Error("calibration " + calibration.name + ": " + what, where, "Correct the calibration file");
    };
    for_each_constant(calibration, [&](const std::string& name, const ConstantUnit&, const Constant& constant) {
        if (!std::isfinite(constant.value) || constant.value <= 0) refuse(name, "the value must be above zero");
        if (constant.low <= 0 || constant.low > constant.value || constant.high < constant.value) {
            refuse(name, "the range must hold the value and stay above zero");
        }
    });
    if (!std::any_of(calibration.attention.begin(), calibration.attention.end(),
                     [](const AttentionKernelConstants& kernel) { return kernel.known(); })) {
        refuse("attention", "no attention kernel has a rate");
    }
    for (const auto& kernel : calibration.attention) {
        for (const auto& direction : kernel.curves) {
            if (kernel.known() && !direction[0].known() && !direction[1].known()) {
                refuse("attention", "a kernel needs a rate forward and a rate backward");
            }
        }
    }
    const auto& points = calibration.gemm.points;
    if (points.empty()) refuse("gemm", "the table is empty");
    if (!std::is_sorted(points.begin(), points.end(),
                        [](const GemmPoint& a, const GemmPoint& b) { return a.n != b.n ? a.n < b.n : a.m < b.m; })) {
        refuse("gemm", "the table must be sorted by n, then m");
    }
    const auto check_table = [&](const std::string& name, const std::vector<LinkPoint>& table) {
        if (table.empty()) refuse(name, "the table is empty");
        for (std::size_t j = 1; j < table.size(); ++j) {
            if (table[j].bytes <= table[j - 1].bytes || table[j].seconds < table[j - 1].seconds) {
                refuse(name, "more bytes must not take less time");
            }
        }
    };
    for (std::size_t i = 0; i < calibration.links.size(); ++i) {
        const std::string name = std::string("links.") + std::string(link_names[i]);
        check_table(name, calibration.links[i].points);
        for (const LinkCurve& group : calibration.smaller_groups[i]) {
            check_table(name + ".of" + std::to_string(group.ranks), group.points);
        }
    }
}

}  // namespace headroom
