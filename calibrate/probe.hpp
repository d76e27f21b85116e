// SPDX-License-Identifier: Apache-2.0
// A probe: one measurement, described so that it can be planned without a GPU and repeated on any machine.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "calibrate/statistics.hpp"
#include "models/schedule.hpp"
#include "models/units.hpp"

namespace headroom {

using Json = nlohmann::ordered_json;

/// Raised with every change that makes old and new figures incomparable. Files of another version are refused.
inline constexpr int probe_method_version = 1;
inline constexpr int probe_file_schema = 1;

/// What the host side of a copy is.
enum class HostPages : std::uint8_t {
    pinned,
    existing,  ///< pageable, touched before
    fresh,     ///< pageable, mapped for this copy: its pages fault while the copy writes them
    written,   ///< pageable, filled just before the copy reads it
};
std::string_view to_string(HostPages memory);

/// `threads` host threads copy at once, each on a stream of its own: over one GPU, or one thread over each of several.
struct HostCopyProbe {
    bool to_host;
    HostPages memory;
    std::int64_t bytes;  ///< of one thread
    int threads;
    int gpus = 1;
};

/// Threads set pinned memory to zero, each its own.
struct ZeroFillProbe {
    std::int64_t bytes;
    int threads;
};

enum class HostGap : std::uint8_t {
    launch,        ///< host time of one kernel launch, stream held
    after_wait,    ///< end of a kernel, host synchronise, start of the next kernel
    pin,           ///< host time to allocate pinned memory of a new size, per byte
    unmap,         ///< host time to give pageable memory back, per byte
    small_kernel,  ///< start to start of small kernels in a full queue
};
std::string_view to_string(HostGap gap);
struct HostGapProbe {
    HostGap gap;
    std::int64_t bytes;  ///< pin and unmap
};

/// The hand-written kernels and the eager steps whose rates the simulator's shares of the copy rate stand for.
enum class DeviceKernel : std::uint8_t {
    copy,            ///< device to device by the driver
    eager_add,       ///< a + b, bf16
    cast_up,         ///< bf16 to fp32
    cast_down,       ///< fp32 to bf16
    complex_rotary,  ///< the eager chain: to fp32, complex multiply, to bf16, each a kernel
    mixed_add,       ///< bf16 += fp32 in place
    mixed_add_wide,  ///< fp32 += bf16 in place
    transpose,       ///< rows of head_dim elements between [tokens, heads] and [heads, tokens]
    head_pack,       ///< for all-to-all: [tokens, ranks, heads] to [ranks, tokens, heads]
    head_unpack,
    rotary,  ///< fused
    norm_forward,
    norm_backward,
    swiglu_forward,
    swiglu_backward,
    merge,          ///< of two partial attention outputs by log-sum-exp
    cross_entropy,  ///< one chunk: loss and gradient of the logits in place
};
inline constexpr std::size_t device_kernel_count = 17;
std::string_view to_string(DeviceKernel kernel);
struct DeviceKernelProbe {
    DeviceKernel kernel;
    std::int64_t rows, columns;  ///< tokens, and elements of a token
};

/// `adds`: the result is added to what is there.
struct GemmProbe {
    std::int64_t m, n, k;
    bool adds = false;
};

struct AttentionProbe {
    Attention shape;
};

/// What a training step makes a GPU do, on `gpus` of the node at once for seconds: `forward` twice, `backward`, and
/// `products` of `gemm`.
struct SustainedProbe {
    Attention forward, backward;
    GemmProbe gemm;
    int products;
    int gpus;
};

/// A collective among the first `ranks` GPUs of the job; bytes as in Collective.
struct CollectiveProbe {
    CollectiveKind kind;
    std::int64_t bytes;
    int ranks;
    bool idle;      ///< on an idle stream, the host's launch included; otherwise in a full queue
    int nodes = 1;  ///< that the ranks stand on
};

/// Device memory NCCL takes for each communicator of a job: at initialisation, and at its first collectives.
struct CollectiveMemoryProbe {
    int ranks;
};

/// Attention and a collective at once, each on a stream of its own, of about equal length.
struct OverlapProbe {
    Attention shape;
    CollectiveKind kind;
    std::int64_t bytes;
    int ranks;
    bool collective_first;
};

/// Attention beside a pinned host copy; the copy is launched first.
struct CopyOverlapProbe {
    Attention shape;
    bool to_host;
    std::int64_t bytes;
};

/// A probe of kernels, timed by events and by CUPTI's record of each kernel: both must say the same.
using KernelProbe = std::variant<DeviceKernelProbe, GemmProbe, AttentionProbe>;
struct CrossCheckProbe {
    std::string of;  ///< name of that probe
    KernelProbe work;
};

using Work = std::variant<HostCopyProbe, ZeroFillProbe, HostGapProbe, DeviceKernelProbe, GemmProbe, AttentionProbe,
                          CollectiveProbe, CollectiveMemoryProbe, OverlapProbe, CopyOverlapProbe, CrossCheckProbe,
                          SustainedProbe>;
/// Throws std::logic_error for what is no kernel.
KernelProbe kernel_probe(const Work& work);

struct Probe {
    std::string name;  ///< stable: resuming and selecting go by it
    Work work;
    Bytes device_memory, host_memory;  ///< needed while it runs
    WarmRule warm;
    StoppingRule stop;
    double preparation = 0.5;  ///< seconds, estimated: allocation, plans, numerics
};

/// True for probes that all processes of a job run together: those of NCCL.
bool is_shared(const Work& work);
/// GPUs that take part in such a probe; 1 for others.
int ranks_of(const Work& work);

std::string_view collective_name(CollectiveKind kind);
/// "host_copy", "gemm", ...
std::string_view kind_of(const Work& work);
/// The fields of the work, with units in their names.
Json settings_of(const Work& work);
/// What one run moves or computes, and in which unit a rate of it is given ("bytes", "flop", "launches").
struct Amount {
    double value;
    std::string_view unit;
};
Amount amount_of(const Work& work);
/// Bytes one GPU sends over its link: what link tables are over.
double bytes_sent(const CollectiveProbe& probe);
/// Seconds the probe is going to take, at most.
double estimated_seconds(const Probe& probe);

/// Bytes a memory-bound kernel reads and writes at least.
double bytes_moved(const DeviceKernelProbe& probe);

/// "128MiB", "1GiB", "3000B".
std::string binary_size(std::int64_t bytes);
/// "128K", "1M", "4097".
std::string binary_tokens(std::int64_t tokens);

}  // namespace headroom
