// SPDX-License-Identifier: Apache-2.0
// All probes, in the order of what they decide. Together they take less than three minutes of a node: each has as many
// samples as its spread needs, and a size or a shape is there because a constant would be another without it.
#include <fmt/format.h>

#include <algorithm>

#include "calibrate/attention_limits.hpp"
#include "calibrate/plan.hpp"
#include "simulator/rates.hpp"

namespace headroom {
namespace {

using Probes = std::vector<Probe>;

// The clock follows the power cap 50 to 100 ms after a load begins.
constexpr double hot_seconds = 0.25;

void add_attention(Probes& probes, std::int64_t tokens, std::int32_t heads, std::int32_t kv_heads,
                   std::int32_t head_dim, bool both_masks = true) {
    for (const bool backward : {false, true}) {
        for (const bool causal : {true, false}) {
            if (!causal && !both_masks) continue;
            const Attention shape{tokens, tokens, heads, kv_heads, head_dim, 1, causal, backward};
            const double run = attention_flops(shape) / 500e12;
            const std::int64_t query = 2 * tokens * heads * head_dim, key = 2 * tokens * kv_heads * head_dim;
            const std::int64_t device =
                (backward ? 4 : 2) * (query + key) + plan_workspace_bytes(shape) + caller_workspace_bytes(shape);
            // A run longer than half a second is hot for most of itself, and one or two are a sustained load.
            const bool is_long = run > 0.4;
            const StoppingRule stop{run > 1   ? 1U
                                    : is_long ? 2U
                                              : 3U,
                                    60, 0.01, is_long ? 0.0 : 0.3, std::max(0.5, (run > 1 ? 1.0 : 2.0) * run)};
            // The numerics run it once more, backward also forward.
            const double preparation = 0.15 + static_cast<double>(tokens) * 1e-6 + (backward ? 1.4 : 1.0) * run;
            probes.push_back({fmt::format("attention/{}/{}/{}/{}x{}/{}", backward ? "backward" : "forward",
                                          causal ? "causal" : "full", binary_tokens(tokens), heads, kv_heads, head_dim),
                              AttentionProbe{shape}, Bytes{device}, Bytes{16 * tokens * head_dim * (heads / kv_heads)},
                              is_long ? WarmRule{0, 0} : WarmRule{1, hot_seconds}, stop, preparation});
        }
    }
}

void add_attentions(Probes& probes) {
    // A rank of Ulysses, of an FPDT chunk or UPipe stage, and of a long ring: curves bend where blocks are few.
    for (const std::int64_t tokens : {8192, 32768, 131072}) add_attention(probes, tokens, 32, 8, 128);
    for (const std::int64_t tokens : {8192, 32768, 131072}) add_attention(probes, tokens, 4, 1, 128);
    for (const std::int64_t tokens : {16384, 65536, 262144}) add_attention(probes, tokens, 1, 1, 128);
    add_attention(probes, 1048576, 1, 1, 128, false);  // without a mask the rate stays the same
    add_attention(probes, 32768, 32, 8, 64);
    add_attention(probes, 32768, 32, 8, 96, false);
}

/// Under the power cap a GPU goes on slowing down for seconds, and those of a node differ: a mix like that of a step,
/// on all of them, says by how much more than in the probes above.
void add_sustained(Probes& probes, const PlanMachine& machine) {
    struct Size {
        std::int64_t tokens;
        std::int32_t heads, kv_heads;
    };
    const GemmProbe gemm{131072, 14336, 4096};
    bool first = true;  // the second finds the GPUs warm
    for (const Size& size : {Size{131072, 32, 8}, {524288, 4, 1}}) {
        const Attention forward{size.tokens, size.tokens, size.heads, size.kv_heads, 128, 1, true, false};
        Attention backward = forward;
        backward.backward = true;
        const double attention = (2 * attention_flops(forward) + attention_flops(backward)) / 500e12;
        const int products = std::max(1, static_cast<int>(0.15 * attention / 0.023));
        const std::int64_t query = 2 * size.tokens * size.heads * 128, key = 2 * size.tokens * size.kv_heads * 128;
        const std::int64_t device = 6 * (query + key) + plan_workspace_bytes(forward) + plan_workspace_bytes(backward) +
                                    caller_workspace_bytes(backward) +
                                    2 * (gemm.m * gemm.k + gemm.n * gemm.k + gemm.m * gemm.n) + gibi;
        probes.push_back({fmt::format("sustained/{}/{}x{}/128", binary_tokens(size.tokens), size.heads, size.kv_heads),
                          SustainedProbe{forward, backward, gemm, products, machine.node_gpus()}, Bytes{device},
                          Bytes{gibi}, WarmRule{1, first ? 2.5 : 0.0}, StoppingRule{1, 20, 0.002, 2.5, 2.5},
                          1.0 + attention});
        first = false;
    }
}

/// Attention beside what runs with it in a step: ring and gathers forward, ring and scatters backward, offload copies.
void add_overlaps(Probes& probes, const PlanMachine& machine) {
    for (const bool backward : {false, true}) {
        const std::int64_t tokens = backward ? 8192 : 16384;
        const Attention shape{tokens, tokens, 32, 8, 128, 1, false, backward};
        const WarmRule warm{3, hot_seconds};
        const StoppingRule stop{5, 40, 0.01, 0.2, 0.5};
        for (const CollectiveKind kind :
             {CollectiveKind::send_recv, backward ? CollectiveKind::reduce_scatter : CollectiveKind::all_gather}) {
            if (machine.gpus < 2) continue;
            // 5 to 7 ms, about what the attention takes.
            const std::int64_t bytes = kind == CollectiveKind::send_recv ? 2 * gibi : 4 * gibi;
            for (const bool collective_first : {false, true}) {
                probes.push_back({fmt::format("overlap/{}/{}/{}_first", backward ? "backward" : "forward",
                                              collective_name(kind), collective_first ? "collective" : "attention"),
                                  OverlapProbe{shape, kind, bytes, machine.gpus, collective_first},
                                  Bytes{2 * bytes + 2 * gibi}, Bytes{gibi}, warm, stop, 0.4});
            }
        }
        // The direction of the offload, and of the fetch before the backward pass.
        const bool to_host = !backward;
        probes.push_back({fmt::format("overlap/{}/{}", backward ? "backward" : "forward",
                                      to_host ? "copy_to_host" : "copy_to_device"),
                          CopyOverlapProbe{shape, to_host, 256 * mebi}, Bytes{3 * gibi}, Bytes{gibi}, warm, stop, 0.5});
    }
}

/// 2 GPUs, 4, ... and all of them: the first count that fails is then known.
std::vector<int> group_sizes(int gpus) {
    std::vector<int> sizes;
    for (int ranks = 2; ranks < gpus; ranks *= 2) sizes.push_back(ranks);
    if (gpus >= 2) sizes.push_back(gpus);
    return sizes;
}

void add_collectives(Probes& probes, const PlanMachine& machine) {
    static constexpr CollectiveKind kinds[]{CollectiveKind::all_to_all, CollectiveKind::send_recv,
                                            CollectiveKind::all_gather, CollectiveKind::reduce_scatter};
    for (const int ranks : group_sizes(machine.gpus)) {
        const int nodes = machine.nodes_of(ranks);
        const std::string group = nodes > 1 ? fmt::format("{}in{}nodes", ranks, nodes) : fmt::format("{}", ranks);
        probes.push_back({fmt::format("collective/memory/{}", group),
                          CollectiveMemoryProbe{ranks},
                          Bytes{4 * gibi},
                          Bytes{gibi},
                          {0, 0},
                          {1, 1, 0, 0, 4},
                          0.5});
        // Groups smaller than the node are seldom the ones that decide: their grid is coarser.
        const std::int64_t step = ranks == machine.gpus || machine.gpus <= 2 ? 2 : 4;
        for (const CollectiveKind kind : kinds) {
            for (std::int64_t bytes = mebi; bytes <= 2 * gibi; bytes *= step) {
                for (const bool idle : {false, true}) {
                    // What an idle stream adds does not depend on the size.
                    if (idle && bytes != mebi) continue;
                    probes.push_back({fmt::format("collective/{}/{}/{}/{}", collective_name(kind), binary_size(bytes),
                                                  group, idle ? "idle" : "full"),
                                      CollectiveProbe{kind, bytes, ranks, idle, nodes},
                                      Bytes{2 * bytes},
                                      Bytes{gibi},
                                      {3, 0.02},
                                      {5, 40, 0.01, 0.03, 0.12},
                                      0.05});
                }
            }
        }
    }
}

void add_gemms(Probes& probes) {
    const auto add = [&](std::int64_t m, std::int64_t n, std::int64_t k, bool adds = false) {
        probes.push_back({fmt::format("gemm/{}x{}/{}{}", n, k, binary_tokens(m), adds ? "/adds" : ""),
                          GemmProbe{m, n, k, adds},
                          Bytes{2 * (m * k + n * k + m * n) + 64 * mebi},
                          Bytes{0},
                          {3, 0.15},
                          {5, 100, 0.01, 0.3, 0.45},
                          0.05});
    };
    struct Width {
        std::int64_t n, k;
    };
    // Llama 3 8B: projections, MLP up and down; UPipe stages of 2 and 4 heads.
    for (const Width& w : {Width{4096, 4096}, {1024, 4096}, {14336, 4096}, {4096, 14336}, {256, 4096}, {512, 4096}}) {
        for (const std::int64_t m : {2048, 8192, 32768, 131072}) {
            if (m == 2048 && w.n > 1024) continue;
            add(m, w.n, w.k);
        }
    }
    // Qwen3 32B.
    for (const Width& w : {Width{8192, 5120}, {1024, 5120}, {25600, 5120}, {5120, 25600}}) {
        for (const std::int64_t m : {8192, 131072}) add(m, w.n, w.k);
    }
    add(524288, 14336, 4096);
    add(4096, 128256, 4096);  // a chunk of the loss
    // The head's weight gradient from a short chunk: what writing the result takes, and reading it.
    add(128256, 4096, 1024);
    add(128256, 4096, 1024, true);
    add(14336, 4096, 131072);  // weight gradients: tokens are the inner dimension
    add(4096, 4096, 131072);
}

void add_host(Probes& probes, const PlanMachine& machine) {
    const auto add = [&](bool to_host, HostPages memory, std::int64_t bytes, int threads, int gpus) {
        if (threads > machine.cpu_threads) return;
        const std::int64_t all = bytes * threads;
        // Pinning runs at a few GB/s; so does the first touch of pageable memory.
        const double preparation = 0.05 + static_cast<double>(all) / (memory == HostPages::fresh ? 1.2e9 : 2e9);
        const bool fresh = memory == HostPages::fresh;
        probes.push_back(
            {fmt::format("host/copy/{}/{}/{}/{}", to_host ? "to_host" : "to_device", to_string(memory),
                         binary_size(bytes), gpus > 1 ? fmt::format("{}gpus", gpus) : fmt::format("{}", threads)),
             HostCopyProbe{to_host, memory, bytes, threads, gpus},
             Bytes{all},
             Bytes{all},
             fresh ? WarmRule{1, 0} : WarmRule{2, 0.05},
             {3, 30, 0.01, 0, fresh ? 0.8 : 0.4},
             preparation});
    };
    struct Kind {
        bool to_host;
        HostPages memory;
    };
    static constexpr Kind kinds[]{{true, HostPages::pinned},   {false, HostPages::pinned},
                                  {true, HostPages::fresh},    {false, HostPages::written},
                                  {true, HostPages::existing}, {false, HostPages::existing}};
    for (const Kind& kind : kinds) {
        for (const std::int64_t bytes : {128 * mebi, 512 * mebi}) add(kind.to_host, kind.memory, bytes, 1, 1);
        if (machine.node_gpus() > 1)
            add(kind.to_host, kind.memory, 128 * mebi, machine.node_gpus(), machine.node_gpus());
        // Eight ranks over one link say whether their page faults get in each other's way.
        if (kind.memory != HostPages::pinned) add(kind.to_host, kind.memory, 64 * mebi, 8, 1);
    }
    struct Fill {
        std::int64_t bytes;
        int threads;
    };
    for (const Fill& fill : {Fill{128 * mebi, 1}, {512 * mebi, 1}, {128 * mebi, 8}}) {
        if (fill.threads > machine.cpu_threads) continue;
        const std::int64_t all = fill.bytes * fill.threads;
        probes.push_back({fmt::format("host/zero_fill/{}/{}", binary_size(fill.bytes), fill.threads),
                          ZeroFillProbe{fill.bytes, fill.threads},
                          Bytes{0},
                          Bytes{all},
                          {2, 0.05},
                          {5, 30, 0.02, 0, 0.3},
                          0.05 + static_cast<double>(all) / 2e9});
    }
    for (const HostGap gap : {HostGap::launch, HostGap::small_kernel, HostGap::after_wait}) {
        probes.push_back({fmt::format("host/gap/{}", to_string(gap)),
                          HostGapProbe{gap, 0},
                          Bytes{mebi},
                          Bytes{mebi},
                          {3, 0.1},
                          {20, 200, 0.02, 0, 0.4},
                          0.05});
    }
    for (const HostGap gap : {HostGap::pin, HostGap::unmap}) {
        probes.push_back({fmt::format("host/gap/{}/{}", to_string(gap), binary_size(128 * mebi)),
                          HostGapProbe{gap, 128 * mebi},
                          Bytes{0},
                          Bytes{128 * mebi},
                          {1, 0},
                          {3, 20, 0.02, 0, 0.4},
                          0.1});
    }
}

void add_kernels(Probes& probes) {
    const auto add = [&](DeviceKernel kernel, std::int64_t rows, std::int64_t columns) {
        const DeviceKernelProbe work{kernel, rows, columns};
        probes.push_back({fmt::format("kernel/{}/{}x{}", to_string(kernel), binary_tokens(rows), columns),
                          work,
                          Bytes{static_cast<std::int64_t>(bytes_moved(work)) + 256 * mebi},
                          Bytes{64 * rows},
                          {5, 0.1},
                          {5, 60, 0.01, 0.15, 0.25},
                          0.1});
    };
    constexpr std::int64_t tokens = 131072, hidden = 4096;
    for (std::size_t i = 0; i < device_kernel_count; ++i) {
        const auto kernel = static_cast<DeviceKernel>(i);
        switch (kernel) {
            case DeviceKernel::swiglu_forward:
            case DeviceKernel::swiglu_backward:
                add(kernel, tokens / 2, 14336);
                break;
            case DeviceKernel::cross_entropy:
                add(kernel, 4096, 128256);
                break;
            case DeviceKernel::norm_forward:
            case DeviceKernel::norm_backward:
                add(kernel, tokens, hidden);
                add(kernel, tokens, 5120);
                break;
            default:
                add(kernel, tokens, hidden);
        }
    }
    add(DeviceKernel::copy, 4096, hidden);
    add(DeviceKernel::eager_add, 8192, hidden);
}

/// A few of the above once more under CUPTI, last: tracing makes launches dearer for the rest of the process.
void add_cross_checks(Probes& probes) {
    static constexpr const char* names[]{"attention/forward/full/8K/32x8/128",
                                         "attention/backward/causal/32K/4x1/128",
                                         "gemm/4096x4096/8K",
                                         "kernel/copy/128Kx4096",
                                         "kernel/norm_backward/128Kx4096",
                                         "kernel/cross_entropy/4Kx128256"};
    for (const char* name : names) {
        const Probe& of = *std::find_if(probes.begin(), probes.end(), [&](const Probe& p) { return p.name == name; });
        probes.push_back({fmt::format("cupti/{}", name),
                          CrossCheckProbe{of.name, kernel_probe(of.work)},
                          of.device_memory,
                          of.host_memory,
                          {3, 0.1},
                          {3, 10, 0.01, 0, 0.3},
                          0.3});
    }
}

}  // namespace

std::vector<Probe> all_probes(const PlanMachine& machine) {
    Probes probes;
    add_attentions(probes);
    add_sustained(probes, machine);
    add_overlaps(probes, machine);
    add_collectives(probes, machine);
    add_gemms(probes);
    add_host(probes, machine);
    add_kernels(probes);
    add_cross_checks(probes);
    return probes;
}

}  // namespace headroom
