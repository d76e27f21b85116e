// SPDX-License-Identifier: Apache-2.0
#include "calibrate/plan.hpp"

#include <fmt/format.h>
#include <fnmatch.h>

#include <algorithm>

#include "calibrate/attention_limits.hpp"
#include "models/error.hpp"
#include "simulator/rates.hpp"

namespace headroom {
namespace {

constexpr double host_copy_seconds = 1.0;

void add_host_copies(std::vector<Probe>& probes, const PlanMachine& machine) {
    const auto add = [&](bool to_host, HostPages memory, std::int64_t bytes, int threads) {
        if (threads > machine.cpu_threads) return;
        const std::int64_t all = bytes * threads;
        // Pinning runs at a few GB/s; so does the first touch of pageable memory.
        const double preparation = 0.1 + static_cast<double>(all) / 3e9;
        probes.push_back({fmt::format("host/copy/{}/{}/{}/{}", to_host ? "to_host" : "to_device", to_string(memory),
                                      binary_size(bytes), threads),
                          HostCopyProbe{to_host, memory, bytes, threads},
                          Bytes{all},
                          Bytes{all},
                          {2, 0.1},
                          {5, 30, 0.02, 0, host_copy_seconds},
                          preparation});
    };
    struct Kind {
        bool to_host;
        HostPages memory;
    };
    static constexpr Kind kinds[]{{true, HostPages::fresh},    {true, HostPages::existing},
                                  {false, HostPages::written}, {false, HostPages::existing},
                                  {true, HostPages::pinned},   {false, HostPages::pinned}};
    for (const Kind& kind : kinds) {
        for (const std::int64_t bytes : {16 * mebi, 128 * mebi, gibi}) add(kind.to_host, kind.memory, bytes, 1);
        for (const int threads : {2, 4, 8}) add(kind.to_host, kind.memory, 128 * mebi, threads);
    }
    for (const Kind& kind : kinds) add(kind.to_host, kind.memory, gibi, 8);
}

void add_host(std::vector<Probe>& probes, const PlanMachine& machine) {
    add_host_copies(probes, machine);
    for (const std::int64_t bytes : {16 * mebi, 128 * mebi, gibi}) {
        for (const int threads : {1, 8}) {
            if (threads > machine.cpu_threads) continue;
            const std::int64_t all = bytes * threads;
            probes.push_back({fmt::format("host/zero_fill/{}/{}", binary_size(bytes), threads),
                              ZeroFillProbe{bytes, threads},
                              Bytes{0},
                              Bytes{all},
                              {2, 0.1},
                              {5, 30, 0.02, 0, host_copy_seconds},
                              0.1 + static_cast<double>(all) / 3e9});
        }
    }
    for (const HostGap gap : {HostGap::launch, HostGap::small_kernel, HostGap::after_wait}) {
        probes.push_back({fmt::format("host/gap/{}", to_string(gap)),
                          HostGapProbe{gap, 0},
                          Bytes{mebi},
                          Bytes{mebi},
                          {3, 0.2},
                          {20, 200, 0.02, 0, 1.0},
                          0.1});
    }
    for (const HostGap gap : {HostGap::pin, HostGap::unmap}) {
        for (const std::int64_t bytes : {128 * mebi, gibi}) {
            probes.push_back({fmt::format("host/gap/{}/{}", to_string(gap), binary_size(bytes)),
                              HostGapProbe{gap, bytes},
                              Bytes{0},
                              Bytes{bytes},
                              {1, 0},
                              {3, 20, 0.02, 0, host_copy_seconds},
                              0.1});
        }
    }
}

void add_attention(std::vector<Probe>& probes) {
    const auto add = [&](std::int64_t tokens, std::int32_t heads, std::int32_t kv_heads, std::int32_t head_dim) {
        for (const bool backward : {false, true}) {
            for (const bool causal : {true, false}) {
                const Attention shape{tokens, tokens, heads, kv_heads, head_dim, 1, causal, backward};
                // One run at 500 TFLOP/s; the longest are one run each.
                const double run = attention_flops(shape) / 500e12;
                const std::int64_t query = 2 * tokens * heads * head_dim, key = 2 * tokens * kv_heads * head_dim;
                const std::int64_t device =
                    (backward ? 4 : 2) * (query + key) + plan_workspace_bytes(shape) + caller_workspace_bytes(shape);
                probes.push_back(
                    {fmt::format("attention/{}/{}/{}/{}x{}/{}", backward ? "backward" : "forward",
                                 causal ? "causal" : "full", binary_tokens(tokens), heads, kv_heads, head_dim),
                     AttentionProbe{shape},
                     Bytes{device},
                     Bytes{16 * tokens * head_dim * (heads / kv_heads)},
                     {1, std::max(0.3, run)},
                     {3, 60, 0.01, 0.6, std::max(1.0, run)},
                     0.5 + static_cast<double>(tokens) * 3e-6});
            }
        }
    };
    struct Heads {
        std::int32_t heads, kv_heads;
        std::int64_t longest;
    };
    for (const Heads& h : {Heads{32, 8, 131072}, Heads{4, 1, 262144}, Heads{1, 1, 1048576}}) {
        for (std::int64_t tokens = 8192; tokens <= h.longest; tokens *= 2) {
            // Factor 4 for the widest and the longest, whose runs are long; factor 2 where curves bend.
            if (h.heads == 4 && tokens != 8192 && tokens != 32768 && tokens != 131072 && tokens != 262144) continue;
            if (h.heads == 1 && tokens > 131072 && tokens != 1048576) continue;
            add(tokens, h.heads, h.kv_heads, 128);
        }
    }
    for (const std::int32_t head_dim : {64, 96}) add(32768, 32, 8, head_dim);
}

void add_gemms(std::vector<Probe>& probes) {
    const auto add = [&](std::int64_t m, std::int64_t n, std::int64_t k) {
        probes.push_back({fmt::format("gemm/{}x{}/{}", n, k, binary_tokens(m)),
                          GemmProbe{m, n, k},
                          Bytes{2 * (m * k + n * k + m * n) + 64 * mebi},
                          Bytes{0},
                          {3, 0.4},
                          {5, 100, 0.01, 0.8, 1.0},
                          0.1});
    };
    struct Width {
        std::int64_t n, k;
    };
    // Llama 3 8B: projections, MLP up and down; UPipe stages of 2, 4 and 8 heads; Qwen3 32B.
    static constexpr Width widths[]{{4096, 4096}, {1024, 4096}, {14336, 4096}, {4096, 14336}, {256, 4096},  {512, 4096},
                                    {8192, 5120}, {1024, 5120}, {5120, 8192},  {25600, 5120}, {5120, 25600}};
    for (const Width& w : widths) {
        for (const std::int64_t m : {2048, 8192, 32768, 131072}) add(m, w.n, w.k);
    }
    add(524288, 14336, 4096);
    add(524288, 4096, 4096);
    add(4096, 128256, 4096);   // a chunk of the loss
    add(14336, 4096, 131072);  // weight gradients: tokens are the inner dimension
    add(4096, 4096, 131072);
}

constexpr CollectiveKind collective_kinds[]{CollectiveKind::all_to_all, CollectiveKind::send_recv,
                                            CollectiveKind::all_gather, CollectiveKind::reduce_scatter};

/// 2 GPUs, 4, ... and all of them: the first count that fails is then known.
std::vector<int> group_sizes(int gpus) {
    std::vector<int> sizes;
    for (int ranks = 2; ranks < gpus; ranks *= 2) sizes.push_back(ranks);
    if (gpus >= 2) sizes.push_back(gpus);
    return sizes;
}

void add_overlaps(std::vector<Probe>& probes, const PlanMachine& machine) {
    if (machine.gpus < 2) return;
    for (const bool backward : {false, true}) {
        const std::int64_t tokens = backward ? 8192 : 16384;
        const Attention shape{tokens, tokens, 32, 8, 128, 1, false, backward};
        for (const CollectiveKind kind :
             {CollectiveKind::send_recv, CollectiveKind::all_gather, CollectiveKind::reduce_scatter}) {
            // 5 to 7 ms, about what the attention takes.
            const std::int64_t bytes = kind == CollectiveKind::send_recv ? 2 * gibi : 4 * gibi;
            for (const bool collective_first : {false, true}) {
                probes.push_back({fmt::format("overlap/{}/{}/{}_first", backward ? "backward" : "forward",
                                              collective_name(kind), collective_first ? "collective" : "attention"),
                                  OverlapProbe{shape, kind, bytes, machine.gpus, collective_first},
                                  Bytes{2 * bytes + 2 * gibi},
                                  Bytes{gibi},
                                  {3, 0.5},
                                  {5, 40, 0.01, 0.5, 1.5},
                                  1.5});
            }
        }
    }
}

void add_collectives(std::vector<Probe>& probes, const PlanMachine& machine) {
    for (const int ranks : group_sizes(machine.gpus)) {
        probes.push_back({fmt::format("collective/memory/{}", ranks),
                          CollectiveMemoryProbe{ranks},
                          Bytes{4 * gibi},
                          Bytes{gibi},
                          {0, 0},
                          {1, 1, 0, 0, 5},
                          3});
        for (const CollectiveKind kind : collective_kinds) {
            for (std::int64_t bytes = mebi; bytes <= 2 * gibi; bytes *= 2) {
                for (const bool idle : {false, true}) {
                    // What an idle stream adds does not depend on the size.
                    if (idle && bytes != mebi && bytes != 64 * mebi) continue;
                    probes.push_back({fmt::format("collective/{}/{}/{}/{}", collective_name(kind), binary_size(bytes),
                                                  ranks, idle ? "idle" : "full"),
                                      CollectiveProbe{kind, bytes, ranks, idle},
                                      Bytes{2 * bytes},
                                      Bytes{gibi},
                                      {3, 0.05},
                                      {5, 40, 0.02, 0, 0.4},
                                      0.1});
                }
            }
        }
    }
}

void add_kernels(std::vector<Probe>& probes) {
    const auto add = [&](DeviceKernel kernel, std::int64_t rows, std::int64_t columns) {
        const DeviceKernelProbe work{kernel, rows, columns};
        probes.push_back({fmt::format("kernel/{}/{}x{}", to_string(kernel), binary_tokens(rows), columns),
                          work,
                          Bytes{static_cast<std::int64_t>(bytes_moved(work)) + 256 * mebi},
                          Bytes{64 * rows},
                          {5, 0.2},
                          {5, 60, 0.01, 0.2, 0.5},
                          0.3});
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

bool matches(const std::string& name, const std::string& glob) { return ::fnmatch(glob.c_str(), name.c_str(), 0) == 0; }

bool matches_any(const std::string& name, const std::vector<std::string>& globs) {
    return std::any_of(globs.begin(), globs.end(), [&](const std::string& glob) { return matches(name, glob); });
}

void reject_idle_globs(const std::vector<Probe>& probes, const std::vector<std::string>& globs, const char* flag) {
    for (const std::string& glob : globs) {
        const bool used =
            std::any_of(probes.begin(), probes.end(), [&](const Probe& probe) { return matches(probe.name, glob); });
        if (!used) {
            throw Error(fmt::format("no probe is called '{}'", glob), flag,
                        "headroom calibrate probes --list names them; * stands for any text");
        }
    }
}

std::string row(const Probe& probe) {
    return fmt::format("{:<44} {:>6.1f} s {:>9.2f} GiB {:>9.2f} GiB\n", probe.name, estimated_seconds(probe),
                       in_gib(probe.device_memory), in_gib(probe.host_memory));
}

}  // namespace

std::vector<Probe> all_probes(const PlanMachine& machine) {
    std::vector<Probe> probes;
    add_attention(probes);
    add_overlaps(probes, machine);
    add_collectives(probes, machine);
    add_gemms(probes);
    add_host(probes, machine);
    add_kernels(probes);
    return probes;
}

ProbePlan plan_probes(const PlanMachine& machine, const Selection& selection) {
    const std::vector<Probe> all = all_probes(machine);
    // A name that larger machines have is no mistake; here there is nothing to run for it.
    PlanMachine large = machine;
    large.gpus = std::max(machine.gpus, 8);
    const std::vector<Probe> anywhere = all_probes(large);
    reject_idle_globs(anywhere, selection.only, "--only");
    reject_idle_globs(anywhere, selection.skip, "--skip");
    ProbePlan plan;
    for (const Probe& probe : all) {
        if (!selection.only.empty() && !matches_any(probe.name, selection.only)) continue;
        if (matches_any(probe.name, selection.skip)) continue;
        if (probe.device_memory > machine.device_memory || probe.host_memory > machine.host_memory) {
            plan.too_big.push_back(probe);
        } else if (selection.budget > 0 && plan.seconds + estimated_seconds(probe) > selection.budget) {
            plan.cut.push_back(probe);
        } else {
            plan.seconds += estimated_seconds(probe);
            plan.probes.push_back(probe);
        }
    }
    return plan;
}

std::string list_text(const ProbePlan& plan) {
    std::string text;
    for (const Probe& probe : plan.probes) text += probe.name + "\n";
    return text;
}

std::string dry_run_text(const ProbePlan& plan) {
    std::string text = fmt::format("{:<44} {:>8} {:>13} {:>13}\n", "probe", "at most", "GPU memory", "host memory");
    Bytes device{0}, host{0};
    for (const Probe& probe : plan.probes) {
        text += row(probe);
        device = std::max(device, probe.device_memory);
        host = std::max(host, probe.host_memory);
    }
    text += fmt::format("{} probes, at most {:.0f} s, {:.2f} GiB of GPU memory and {:.2f} GiB of host memory at once\n",
                        plan.probes.size(), plan.seconds, in_gib(device), in_gib(host));
    for (const Probe& probe : plan.too_big)
        text += fmt::format("not run, too large for this machine: {}\n", probe.name);
    for (const Probe& probe : plan.cut) text += fmt::format("not run, beyond --budget: {}\n", probe.name);
    return text;
}

}  // namespace headroom
