// SPDX-License-Identifier: Apache-2.0
#include "calibrate/probe.hpp"

#include <fmt/format.h>

#include <array>
#include <stdexcept>

#include "simulator/rates.hpp"

namespace headroom {
namespace {

template <class... Cases>
struct Overloaded : Cases... {
    using Cases::operator()...;
};
template <class... Cases>
Overloaded(Cases...) -> Overloaded<Cases...>;

constexpr std::array<std::string_view, 4> host_pages_names{"pinned", "existing", "fresh", "written"};
constexpr std::array<std::string_view, 5> host_gap_names{"launch", "after_wait", "pin", "unmap", "small_kernel"};
constexpr std::array<std::string_view, device_kernel_count> device_kernel_names{
    "copy",           "eager_add",      "cast_up",         "cast_down",   "complex_rotary", "mixed_add",
    "mixed_add_wide", "transpose",      "head_pack",       "head_unpack", "rotary",         "norm_forward",
    "norm_backward",  "swiglu_forward", "swiglu_backward", "merge",       "cross_entropy"};

double real(std::int64_t value) { return static_cast<double>(value); }

/// Bytes read and written for one element of [rows, columns]; the comment beside each kernel says of what.
double bytes_per_element(DeviceKernel kernel) {
    switch (kernel) {
        case DeviceKernel::copy:
        case DeviceKernel::transpose:
        case DeviceKernel::head_pack:
        case DeviceKernel::head_unpack:
        case DeviceKernel::rotary:  // the table of cosines is shared by all heads
        case DeviceKernel::norm_forward:
        case DeviceKernel::cross_entropy:  // logits in, gradient out, in place
            return 4;
        case DeviceKernel::eager_add:
        case DeviceKernel::cast_up:
        case DeviceKernel::cast_down:
        case DeviceKernel::norm_backward:  // x, gradient in; gradient out
        case DeviceKernel::swiglu_forward:
            return 6;
        case DeviceKernel::mixed_add:
            return 8;
        case DeviceKernel::complex_rotary:  // 2+4 up, 4+4 multiply, 4+2 down
            return 20;
        case DeviceKernel::mixed_add_wide:
        case DeviceKernel::swiglu_backward:  // gate, up, gradient in; two gradients out
        case DeviceKernel::merge:            // fp32 accumulator read and written, bf16 block read
            return 10;
    }
    return 0;
}

Work any_work(const KernelProbe& work) {
    return std::visit([](const auto& one) { return Work{one}; }, work);
}

Json attention_settings(const Attention& a) {
    return Json{{"direction", a.backward ? "backward" : "forward"},
                {"mask", a.causal ? "causal" : "full"},
                {"query_tokens", a.query_len},
                {"key_tokens", a.key_len},
                {"heads", a.heads},
                {"kv_heads", a.kv_heads},
                {"head_dim", a.head_dim}};
}

}  // namespace

std::string_view collective_name(CollectiveKind kind) {
    static constexpr std::array<std::string_view, 5> names{"all_to_all", "all_gather", "reduce_scatter", "send_recv",
                                                           "barrier"};
    return names[static_cast<std::size_t>(kind)];
}

int ranks_of(const Work& work) {
    if (const auto* one = std::get_if<CollectiveProbe>(&work)) return one->ranks;
    if (const auto* one = std::get_if<CollectiveMemoryProbe>(&work)) return one->ranks;
    if (const auto* one = std::get_if<OverlapProbe>(&work)) return one->ranks;
    return 1;
}

bool is_shared(const Work& work) { return ranks_of(work) > 1; }

KernelProbe kernel_probe(const Work& work) {
    if (const auto* one = std::get_if<DeviceKernelProbe>(&work)) return *one;
    if (const auto* one = std::get_if<GemmProbe>(&work)) return *one;
    if (const auto* one = std::get_if<AttentionProbe>(&work)) return *one;
    throw std::logic_error("a probe of another kind has no kernel of its own");
}

double bytes_sent(const CollectiveProbe& probe) {
    if (probe.kind == CollectiveKind::send_recv) return real(probe.bytes);
    return real(probe.bytes) * (probe.ranks - 1) / probe.ranks;
}

std::string_view to_string(HostPages memory) { return host_pages_names[static_cast<std::size_t>(memory)]; }
std::string_view to_string(HostGap gap) { return host_gap_names[static_cast<std::size_t>(gap)]; }
std::string_view to_string(DeviceKernel kernel) { return device_kernel_names[static_cast<std::size_t>(kernel)]; }

std::string_view kind_of(const Work& work) {
    static constexpr std::array<std::string_view, std::variant_size_v<Work>> names{
        "host_copy",  "zero_fill",         "host_gap", "device_kernel", "gemm",        "attention",
        "collective", "collective_memory", "overlap",  "copy_overlap",  "cross_check", "sustained"};
    return names[work.index()];
}

Json settings_of(const Work& work) {
    return std::visit(Overloaded{
                          [](const HostCopyProbe& w) {
                              return Json{{"direction", w.to_host ? "to_host" : "to_device"},
                                          {"memory", to_string(w.memory)},
                                          {"bytes", w.bytes},
                                          {"threads", w.threads},
                                          {"gpus", w.gpus}};
                          },
                          [](const ZeroFillProbe& w) {
                              return Json{{"bytes", w.bytes}, {"threads", w.threads}};
                          },
                          [](const HostGapProbe& w) {
                              return Json{{"gap", to_string(w.gap)}, {"bytes", w.bytes}};
                          },
                          [](const DeviceKernelProbe& w) {
                              return Json{{"kernel", to_string(w.kernel)}, {"rows", w.rows}, {"columns", w.columns}};
                          },
                          [](const GemmProbe& w) {
                              Json settings{{"m", w.m}, {"n", w.n}, {"k", w.k}};
                              if (w.adds) settings["adds"] = true;
                              return settings;
                          },
                          [](const AttentionProbe& w) { return attention_settings(w.shape); },
                          [](const SustainedProbe& w) {
                              Json settings = attention_settings(w.forward);
                              settings["direction"] = "both";
                              settings["gemm"] = {w.gemm.m, w.gemm.n, w.gemm.k};
                              settings["products"] = w.products;
                              settings["gpus"] = w.gpus;
                              return settings;
                          },
                          [](const CollectiveProbe& w) {
                              return Json{{"collective", collective_name(w.kind)},
                                          {"bytes", w.bytes},
                                          {"ranks", w.ranks},
                                          {"nodes", w.nodes},
                                          {"stream", w.idle ? "idle" : "full"},
                                          {"bytes_sent", bytes_sent(w)}};
                          },
                          [](const CollectiveMemoryProbe& w) {
                              return Json{{"ranks", w.ranks}};
                          },
                          [](const OverlapProbe& w) {
                              Json settings = attention_settings(w.shape);
                              settings["collective"] = collective_name(w.kind);
                              settings["bytes"] = w.bytes;
                              settings["ranks"] = w.ranks;
                              settings["first"] = w.collective_first ? "collective" : "attention";
                              return settings;
                          },
                          [](const CopyOverlapProbe& w) {
                              Json settings = attention_settings(w.shape);
                              settings["copy"] = w.to_host ? "to_host" : "to_device";
                              settings["bytes"] = w.bytes;
                              return settings;
                          },
                          [](const CrossCheckProbe& w) {
                              Json settings{{"of", w.of}};
                              settings.update(settings_of(any_work(w.work)));
                              return settings;
                          },
                      },
                      work);
}

Amount amount_of(const Work& work) {
    return std::visit(Overloaded{
                          // All threads together: what the link carries.
                          [](const HostCopyProbe& w) {
                              return Amount{real(w.bytes) * w.threads, "bytes"};
                          },
                          [](const ZeroFillProbe& w) {
                              return Amount{real(w.bytes) * w.threads, "bytes"};
                          },
                          [](const HostGapProbe& w) {
                              return w.bytes > 0 ? Amount{real(w.bytes), "bytes"} : Amount{1, "launches"};
                          },
                          [](const DeviceKernelProbe& w) {
                              return Amount{bytes_moved(w), "bytes"};
                          },
                          [](const GemmProbe& w) {
                              return Amount{2 * real(w.m) * real(w.n) * real(w.k), "flop"};
                          },
                          [](const SustainedProbe& w) {
                              return Amount{2 * attention_flops(w.forward) + attention_flops(w.backward) +
                                                w.products * 2 * real(w.gemm.m) * real(w.gemm.n) * real(w.gemm.k),
                                            "flop"};
                          },
                          [](const CollectiveProbe& w) {
                              return Amount{bytes_sent(w), "bytes"};
                          },
                          [](const CollectiveMemoryProbe&) {
                              return Amount{1, "initialisations"};
                          },
                          [](const OverlapProbe& w) {
                              return Amount{attention_flops(w.shape), "flop"};
                          },
                          [](const CopyOverlapProbe& w) {
                              return Amount{attention_flops(w.shape), "flop"};
                          },
                          [](const CrossCheckProbe& w) { return amount_of(any_work(w.work)); },
                          [](const AttentionProbe& w) {
                              return Amount{attention_flops(w.shape), "flop"};
                          },
                      },
                      work);
}

double bytes_moved(const DeviceKernelProbe& probe) {
    return bytes_per_element(probe.kernel) * real(probe.rows) * real(probe.columns);
}

double estimated_seconds(const Probe& probe) {
    return probe.preparation + probe.warm.seconds + probe.stop.seconds_most;
}

std::string binary_size(std::int64_t bytes) {
    static constexpr std::array<std::string_view, 4> units{"B", "KiB", "MiB", "GiB"};
    std::size_t unit = 0;
    while (unit + 1 < units.size() && bytes >= kibi && bytes % kibi == 0) {
        bytes /= kibi;
        ++unit;
    }
    return fmt::format("{}{}", bytes, units[unit]);
}

std::string binary_tokens(std::int64_t tokens) {
    if (tokens % mebi == 0) return fmt::format("{}M", tokens / mebi);
    if (tokens % kibi == 0) return fmt::format("{}K", tokens / kibi);
    return fmt::format("{}", tokens);
}

}  // namespace headroom
