// SPDX-License-Identifier: Apache-2.0
// A fit as the text of a calibration file.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "calibrate/fit.hpp"

namespace headroom {
namespace {

struct Unit {
    const char* key;
    double factor;
};
constexpr Unit tflops{"tflops", 1e12}, gb_per_s{"gb_per_s", 1e9}, microseconds{"us", 1e-6}, ratio{"ratio", 1};

std::string text_of(const Constant& constant, const Unit& unit) {
    return fmt::format("{{{}: {:.4g}, low: {:.4g}, high: {:.4g}, source: {}, reference: \"{}\"}}", unit.key,
                       constant.value / unit.factor, constant.low / unit.factor, constant.high / unit.factor,
                       to_string(constant.source), constant.reference);
}

std::string curve_text(bool causal, const CurveFit& fit) {
    const Residuals& r = fit.residuals;
    const AttentionCurve& curve = fit.curve;
    std::string text = fmt::format("      # {} probes: off by {:.1f} % (median), {:.1f} % (worst), {:.1f} % left out\n",
                                   r.points, 100 * r.median, 100 * r.worst, 100 * r.leave_one_out);
    for (const std::string& outlier : r.outliers) text += fmt::format("      # not fitted: {}\n", outlier);
    text += fmt::format("      {}:\n        rate: {}\n", causal ? "causal" : "full", text_of(curve.asymptote, tflops));
    text += fmt::format("        half_length: {:.4g}\n        exponent: {:.3g}\n", curve.half_length, curve.exponent);
    if (curve.fall != 0) text += fmt::format("        fall: {:.2f}\n", curve.fall);
    if (curve.tail != 0) text += fmt::format("        tail: {:.2f}\n", curve.tail);
    return text + fmt::format("        lengths: [{}, {}]\n", curve.shortest, curve.longest);
}

std::string attention_text(const FitResult& fit, const Calibration& base) {
    const AttentionKernelConstants& before = base.attention[static_cast<std::size_t>(AttentionKernel::cudnn)];
    std::string text = "\nattention:\n  cudnn:\n";
    if (fit.exposed_collective_first.value > 0) {
        // Ring codes launch the transfer first.
        text += fmt::format("    ring_overlap: {}\n    ring_overlap_source: MEASURED\n    exposed:\n",
                            fit.exposed_collective_first.value < 0.5 ? "hidden" : "serialised");
        text += fmt::format("      collective_first: {}\n", text_of(fit.exposed_collective_first, ratio));
        text += fmt::format("      attention_first: {}\n", text_of(fit.exposed_attention_first, ratio));
    } else {
        text += fmt::format("    ring_overlap: {}\n    ring_overlap_source: {}\n",
                            before.ring_overlap == Overlap::hidden ? "hidden" : "serialised",
                            to_string(before.ring_overlap_source));
    }
    const double at_64 = fit.head_dim_64 > 0 ? fit.head_dim_64 : before.head_dim_64;
    const double at_256 = fit.head_dim_256 > 0 ? fit.head_dim_256 : before.head_dim_256;
    text += fmt::format("    head_dim_64: {:.3f}\n    head_dim_256: {:.3f}\n", at_64, at_256);
    text += "    forward:\n";
    for (const auto& [causal, curve] : fit.forward) text += curve_text(causal, curve);
    text += "    backward:\n";
    for (const auto& [causal, curve] : fit.backward) text += curve_text(causal, curve);
    return text;
}

std::string gemm_text(const FitResult& fit, const Calibration& base) {
    std::string text = fmt::format("\ngemm:\n  streaming_multiprocessors: {}\n  tile: [{}, {}]\n",
                                   fit.streaming_multiprocessors, base.gemm.tile_rows, base.gemm.tile_columns);
    if (fit.epilogue.value > 0) text += fmt::format("  epilogue: {}\n", text_of(fit.epilogue, ratio));
    text += "  table:\n";
    for (const auto& [point, probes] : fit.gemm) {
        text += fmt::format("    - {{m: {}, n: {}, k: {}, rate: {}}}\n", point.m, point.n, point.k,
                            text_of(point.rate, tflops));
    }
    return text;
}

std::string memory_text(const FitResult& fit) {
    std::string text = fmt::format("\nmemory:\n  copy_rate: {}\n", text_of(fit.copy_rate, gb_per_s));
    if (!fit.shares.empty()) text += "  share:\n";
    for (const auto& [kernel, share] : fit.shares) {
        text +=
            fmt::format("    {}: {}\n", memory_kernel_names[static_cast<std::size_t>(kernel)], text_of(share, ratio));
    }
    if (fit.kernel_start.value > 0)
        text += fmt::format("  kernel_start: {}\n", text_of(fit.kernel_start, microseconds));
    return text;
}

std::string link_keys(const LinkFit& fit, const LinkCurve& base, const std::string& indent) {
    const LinkCurve& curve = fit.curve;
    // Not probed on an idle stream: what the base has.
    const Constant& idle = curve.alpha_idle.value > 0 ? curve.alpha_idle : base.alpha_idle;
    std::string text = fmt::format("{0}alpha: {1}\n{0}alpha_idle: {2}\n{0}rate: {3}\n{0}ranks: {4}\n{0}table: [",
                                   indent, text_of(curve.alpha, microseconds), text_of(idle, microseconds),
                                   text_of(curve.rate, gb_per_s), curve.ranks);
    for (std::size_t i = 0; i < curve.points.size(); ++i) {
        text +=
            fmt::format("{}[{:.0f}, {:.1f}]", i == 0 ? "" : ", ", curve.points[i].bytes, curve.points[i].seconds * 1e6);
    }
    return text + "]\n";
}

std::string link_comment(const LinkFit& fit, const std::string& indent) {
    const Residuals& r = fit.residuals;
    std::string text = fmt::format(
        "{}# {} GPUs, {} sizes: off by {:.1f} % (median), {:.1f} % (worst) read without the size itself; a start-up "
        "and a "
        "rate\n{}# alone {:.1f} % and {:.1f} %\n",
        indent, fit.curve.ranks, r.points, 100 * r.leave_one_out, 100 * r.worst, indent, 100 * fit.line.median,
        100 * fit.line.worst);
    for (const std::string& outlier : r.outliers) text += fmt::format("{}# not fitted: {}\n", indent, outlier);
    return text;
}

/// Inside a node: the largest group first, the smaller ones behind it.
std::string links_text(const FitResult& fit, const Calibration& base) {
    std::string text;
    for (std::size_t kind = 0; kind < link_names.size(); ++kind) {
        std::vector<const LinkFit*> groups;
        for (const LinkFit& one : fit.links) {
            if (one.nodes == 1 && static_cast<std::size_t>(one.kind) == kind) groups.push_back(&one);
        }
        if (groups.empty()) continue;
        std::sort(groups.begin(), groups.end(),
                  [](const LinkFit* a, const LinkFit* b) { return a->curve.ranks > b->curve.ranks; });
        text += fmt::format("  {}:\n{}{}", link_names[kind], link_comment(*groups.front(), "    "),
                            link_keys(*groups.front(), base.links[kind], "    "));
        if (groups.size() > 1) text += "    groups:\n";
        for (std::size_t i = 1; i < groups.size(); ++i) {
            std::string keys = link_keys(*groups[i], base.links[kind], "        ");
            keys[6] = '-';
            text += link_comment(*groups[i], "      ") + keys;
        }
    }
    if (!text.empty()) text = "\nlinks:\n" + text;
    if (fit.nic_rate.value > 0 && fit.ring_rate.value > 0 && fit.across_alpha.value > 0) {
        text += fmt::format("across_nodes:\n  alpha: {}\n  nic_rate: {}\n  ring_rate: {}\n",
                            text_of(fit.across_alpha, microseconds), text_of(fit.nic_rate, gb_per_s),
                            text_of(fit.ring_rate, gb_per_s));
    }
    if (fit.collective_share.value > 0) {
        text += fmt::format("\ncollective_share: {}\n", text_of(fit.collective_share, ratio));
    }
    return text;
}

std::string host_text(const FitResult& fit) {
    std::string text = "\nhost:\n";
    for (const HostFit& one : fit.host) {
        const std::string_view key = one.key;
        const Unit& unit = key == "launch" || key == "after_wait" ? microseconds : key == "all_gpus" ? ratio : gb_per_s;
        text += fmt::format("  {}: {}\n", one.key, text_of(one.constant, unit));
    }
    return text;
}

}  // namespace

std::string calibration_text(const FitResult& fit, const Calibration& base, const std::string& machine) {
    const Datasheet& sheet = base.datasheet;
    std::string text = fmt::format(
        "# SPDX-License-Identifier: Apache-2.0\n# Written by headroom calibrate fit: {}, {}.\n# Sustained rates: each "
        "probe ran until its GPU was warm, under whatever power cap it has.\n",
        fit.machine, fit.software);
    text += fmt::format("# From {}.\n", fmt::join(fit.files, ", "));
    for (const std::string& one : fit.remarks) text += fmt::format("# {}\n", one);
    for (const std::string& one : fit.left_out) text += fmt::format("# left out: {}\n", one);
    text += fmt::format(
        "schema: 1\nbase: {}\ndescription: \"{} {}, probed; the rest from {}\"\nkind: measured\nmachines: [{}]\n",
        base.name, fit.gpus, fit.machine, base.name, machine);
    text += fmt::format("datasheet:\n  peak_bf16: {:.6g}TFLOPS\n  memory_bandwidth: {:.6g}TB/s\n",
                        sheet.peak_bf16 / 1e12, sheet.memory_bandwidth / 1e12);
    text += fmt::format("  nvlink_bandwidth: {:.6g}GB/s\n  pcie_bandwidth: {:.6g}GB/s\n  nic_bandwidth: {:.6g}GB/s\n",
                        sheet.nvlink / 1e9, sheet.pcie / 1e9, sheet.nic / 1e9);
    if (!fit.forward.empty() && !fit.backward.empty()) text += attention_text(fit, base);
    if (!fit.gemm.empty()) text += gemm_text(fit, base);
    if (fit.copy_rate.value > 0) text += memory_text(fit);
    text += links_text(fit, base);
    if (!fit.host.empty()) text += host_text(fit);
    return text;
}

std::string cluster_text(const FitResult& fit, const std::string& base) {
    const DeviceMemoryFit& memory = fit.memory;
    std::string text = fmt::format(
        "# SPDX-License-Identifier: Apache-2.0\n# Written by headroom calibrate fit: {}, {}.\nbase: {}\nnodes: 1\n"
        "gpus_per_node: {}\ndevice_memory: {}   # MEASURED: total the driver reports\n"
        "host_memory: {}     # MEASURED: of the machine that was probed\n",
        fit.machine, fit.software, base, fit.gpus, fit.gpu_bytes, fit.host_bytes);
    if (memory.context > 0) {
        text += fmt::format("# CUDA's context alone takes {} bytes; a framework's kernels and libraries come on top.\n",
                            memory.context);
    }
    if (memory.ranks > 0) {
        text += fmt::format(
            "# NCCL among {} GPUs: MEASURED, a communicator after its first gather and scatter; a further one "
            "before\n# "
            "its first exchange, and what that adds for each peer.\nnccl_communicator: {}\nnccl_group: {}\n"
            "nccl_peer_buffer: {}\n",
            memory.ranks, memory.communicator, memory.group, memory.peer_buffer);
    }
    return text;
}

}  // namespace headroom
