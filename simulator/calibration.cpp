// SPDX-License-Identifier: Apache-2.0
#include "simulator/calibration.hpp"

#include <algorithm>
#include <cmath>

#include "models/error.hpp"

namespace headroom {

namespace {

/// Calls visit(name, constant) for every constant there is, optional ones only when given.
template <class Calibrated, class Visit>
void for_each_constant(Calibrated& calibration, Visit&& visit) {
    for (std::size_t kernel = 0; kernel < calibration.attention.size(); ++kernel) {
        for (auto& direction : calibration.attention[kernel].curves) {
            for (auto& curve : direction) {
                if (curve.known())
                    visit(std::string("attention.") + std::string(attention_kernel_names[kernel]), curve.asymptote);
            }
        }
    }
    for (auto& point : calibration.gemm.points) visit("gemm", point.rate);
    visit("memory.copy_rate", calibration.memory.copy_rate);
    for (std::size_t i = 0; i < calibration.memory.share.size(); ++i) {
        visit(std::string("memory.share.") + std::string(memory_kernel_names[i]), calibration.memory.share[i]);
    }
    visit("memory.kernel_start", calibration.memory.kernel_start);
    for (std::size_t i = 0; i < calibration.links.size(); ++i) {
        auto& link = calibration.links[i];
        const std::string name = std::string("links.") + std::string(link_names[i]);
        visit(name + ".alpha", link.alpha);
        visit(name + ".alpha_idle", link.alpha_idle);
        visit(name + ".rate", link.rate);
    }
    auto& across = calibration.across_nodes;
    visit("across_nodes.alpha", across.alpha);
    visit("across_nodes.nic_rate", across.nic_rate);
    visit("across_nodes.ring_rate", across.ring_rate);
    auto& host = calibration.host;
    visit("host.to_host", host.to_host);
    visit("host.to_device", host.to_device);
    visit("host.all_gpus", host.all_gpus);
    visit("host.pageable_fresh", host.pageable_fresh);
    visit("host.pageable", host.pageable);
    visit("host.zero_fill", host.zero_fill);
    visit("host.tokenise", host.tokenise);
    visit("host.launch", host.launch);
    visit("host.after_wait", host.after_wait);
    visit("host.barrier", host.barrier);
    visit("collective_share", calibration.collective_share);
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

    const double flops = ratio(to.peak_bf16.value, from.datasheet.peak_bf16);
    const double memory = ratio(to.memory_bandwidth.value, from.datasheet.memory_bandwidth);
    const double nvlink = ratio(to.nvlink_bandwidth.value, from.datasheet.nvlink);
    const double pcie = ratio(to.pcie_bandwidth.value, from.datasheet.pcie);
    const double nic = ratio(to.nic_bandwidth.value, from.datasheet.nic);
    result.datasheet = {to.peak_bf16.value, to.memory_bandwidth.value, to.nvlink_bandwidth.value,
                        to.pcie_bandwidth.value, to.nic_bandwidth.value};

    for (auto& kernel : result.attention) {
        for (auto& direction : kernel.curves) {
            for (auto& curve : direction) scale(curve.asymptote, flops);
        }
    }
    for (auto& point : result.gemm.points) scale(point.rate, flops);
    scale(result.memory.copy_rate, memory);
    for (auto& link : result.links) {
        scale(link.rate, nvlink);
        for (auto& point : link.points) point.seconds /= nvlink;
    }
    scale(result.across_nodes.nic_rate, nic);
    scale(result.across_nodes.ring_rate, nic);
    scale(result.host.to_host, pcie);
    scale(result.host.to_device, pcie);

    const std::string note = "carried over from " + from.name + " by datasheet ratio: ";
    for_each_constant(result, [&](const std::string&, Constant& constant) {
        constant.low = std::min(constant.low, constant.value * (1.0 - doubt));
        constant.high = std::max(constant.high, constant.value * (1.0 + doubt));
        if (constant.source != Source::assumed) constant.source = Source::derived;
        constant.reference = note + constant.reference;
    });
    return result;
}

void check(const Calibration& calibration) {
    const auto refuse = [&](const std::string& where, const std::string& what) {
        throw Error("calibration " + calibration.name + ": " + what, where, "Correct the calibration file");
    };
    for_each_constant(calibration, [&](const std::string& name, const Constant& constant) {
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
    for (std::size_t i = 0; i < calibration.links.size(); ++i) {
        const auto& table = calibration.links[i].points;
        const std::string name = std::string("links.") + std::string(link_names[i]);
        if (table.empty()) refuse(name, "the table is empty");
        for (std::size_t j = 1; j < table.size(); ++j) {
            if (table[j].bytes <= table[j - 1].bytes || table[j].seconds < table[j - 1].seconds) {
                refuse(name, "more bytes must not take less time");
            }
        }
    }
}

}  // namespace headroom
