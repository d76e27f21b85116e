// SPDX-License-Identifier: Apache-2.0
// The constants of one kind of machine and software stack, as a calibration file gives them. SI units throughout:
// seconds, bytes, FLOP/s, bytes/s.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "models/cluster.hpp"
#include "models/recipe.hpp"
#include "models/schedule.hpp"

namespace headroom {

/// Where a number comes from, most trusted first.
enum class Source : std::uint8_t {
    measured,   ///< by a probe on such a machine
    fitted,     ///< least squares over measured or published points
    derived,    ///< computed from other constants, or carried over by a datasheet ratio
    published,  ///< read in somebody's paper, table or log
    assumed,    ///< nobody has measured it; the spread says how little is known
};
inline constexpr std::array<std::string_view, 5> source_names{"MEASURED", "FITTED", "DERIVED", "PUBLISHED", "ASSUMED"};
constexpr std::string_view to_string(Source source) { return source_names[static_cast<std::size_t>(source)]; }

/// A number, the range it may lie in, and where it was read.
struct Constant {
    double value = 0;
    double low = 0;
    double high = 0;
    Source source = Source::assumed;
    std::string reference;
};

/// Rate of a fused attention kernel in one direction under one mask:
///     R / (1 + (s0/s)^p) * (s/64K)^-fall / (1 + tail * 2 SM / max(blocks, SM)) * min(1, blocks / SM)
/// s is the key length forward and the query length backward; `blocks` are the thread blocks of 128 rows, `tail` is
/// for causal kernels whose longest tiles come last.
struct AttentionCurve {
    Constant asymptote;    ///< R, FLOP/s of multiply-adds under the mask (causal halved, backward 2.5 forwards)
    double half_length{};  ///< s0, tokens
    double exponent = 1;   ///< p
    double fall = 0;
    double tail = 0;
    std::int64_t shortest = 0, longest = 0;  ///< tokens, the lengths it was fitted on
    bool known() const { return asymptote.value > 0; }
};

/// Does a ring transfer hide under the attention kernel beside it?
enum class Overlap : std::uint8_t {
    hidden,      ///< time = max: the collective gets its SMs between two of the kernel's blocks
    serialised,  ///< time = sum: a persistent kernel keeps every SM, whichever comes first holds the other up
};

struct AttentionKernelConstants {
    // [backward][causal]
    std::array<std::array<AttentionCurve, 2>, 2> curves;
    /// Rate relative to head_dim 128: at 64 and at 256.
    double head_dim_64 = 1, head_dim_256 = 1;
    Overlap ring_overlap = Overlap::serialised;
    Source ring_overlap_source = Source::assumed;
    /// Share of the shorter of the kernel and a collective beside it that is not hidden, by which was launched first;
    /// value 0: not measured.
    Constant exposed_collective_first, exposed_attention_first;
    bool known() const { return curves[0][0].known() || curves[0][1].known(); }
};

/// Sustained rate of C[m,n] = A[m,k] B[k,n], m >= n.
struct GemmPoint {
    std::int64_t m, n, k;
    Constant rate;  ///< FLOP/s
};

struct GemmConstants {
    std::vector<GemmPoint> points;  ///< sorted by n, then m
    int streaming_multiprocessors = 132;
    int tile_rows = 128, tile_columns = 256;  ///< of the kernels that large shapes get
    /// Share of the traffic of C, at the copy rate, that no multiplication hides; value 0: not measured. The rates of
    /// the table hold it at their k, so it counts where k is smaller or C is read, too.
    Constant epilogue;
};

struct MemoryConstants {
    Constant copy_rate;             ///< bytes read + written per second of a large device copy
    std::array<Constant, 7> share;  ///< of the copy rate, by MemoryKernel
    Constant kernel_start;          ///< per launch, drain and fill between two kernels
};
inline constexpr std::array<std::string_view, 7> memory_kernel_names{
    "copy", "eager", "norm_forward", "norm_backward", "mixed_add", "transpose", "optimizer"};

struct LinkPoint {
    double bytes;    ///< sent by one GPU over its link
    double seconds;  ///< without the start-up time
};

/// One kind of collective inside a node: start-up plus a table, interpolated log-log, at constant rate beyond its end.
struct LinkCurve {
    Constant alpha;       ///< start-up with the host ahead, seconds
    Constant alpha_idle;  ///< on an idle stream, the host's launch included, seconds
    Constant rate;        ///< at the end of the table, bytes/s per GPU and direction; its range is the curve's spread
    std::vector<LinkPoint> points;
    int ranks = 0;  ///< group size it was measured on
};

struct AcrossNodes {
    Constant alpha;      ///< start-up across nodes, seconds, beside the one inside
    Constant nic_rate;   ///< bytes/s per GPU through its NIC
    Constant ring_rate;  ///< bus rate of all-gather and reduce-scatter rings: one NIC's, or all rails together
};

struct HostConstants {
    Constant to_host, to_device;  ///< pinned, one GPU copying, bytes/s
    Constant all_gpus;            ///< share of that rate left when every GPU of the node copies
    Constant pageable_fresh;      ///< into memory whose pages fault during the copy, bytes/s
    Constant pageable_to_host;    ///< into pageable memory that exists, bytes/s
    Constant pageable_to_device;  ///< from pageable memory, bytes/s
    Constant zero_fill;           ///< one CPU thread, bytes/s
    Constant tokenise;            ///< seconds per token
    Constant launch;              ///< host time of one kernel launch, seconds
    Constant after_wait;          ///< from a stream running dry to the start of the next kernel, seconds
    Constant barrier;             ///< a barrier itself, seconds
};

/// The machine the constants belong to, by its datasheet: what other machines are derived by.
struct Datasheet {
    double peak_bf16 = 0;                  ///< dense FLOP/s
    double memory_bandwidth = 0;           ///< bytes/s
    double nvlink = 0, pcie = 0, nic = 0;  ///< bytes/s per GPU and direction
};

struct Calibration {
    std::string name;
    std::string description;
    std::string architecture;           ///< as Cluster::architecture
    std::string kind;                   ///< "measured", "published", "derived"
    std::vector<std::string> machines;  ///< built-in cluster names it was made for
    Datasheet datasheet;

    std::array<AttentionKernelConstants, 3> attention;  ///< by AttentionKernel
    GemmConstants gemm;
    MemoryConstants memory;
    std::array<LinkCurve, 4> links;  ///< by CollectiveKind, barrier excepted; of the largest group inside a node
    std::array<std::vector<LinkCurve>, 4> smaller_groups;  ///< of a node's GPUs, where they were measured
    AcrossNodes across_nodes;
    HostConstants host;
    Constant collective_share;  ///< share of the SMs that a running NCCL kernel holds
};
inline constexpr std::array<std::string_view, 4> link_names{"all_to_all", "all_gather", "reduce_scatter", "send_recv"};

struct ConstantUnit {
    std::string_view name;
    double factor;  ///< SI value of one unit
};
struct NamedConstant {
    std::string name;  ///< "attention.fa3.forward.causal", "links.all_to_all.rate"
    ConstantUnit unit;
    Constant constant;
};
/// Every constant that carries a source and a range, in the order of the file.
std::vector<NamedConstant> constants_of(const Calibration& calibration);

/// Carries the constants over to another machine by the ratios of the datasheets; every tag becomes DERIVED and every
/// range at least as wide as `doubt` (0.15 = 15 % each way).
Calibration derive(const Calibration& from, const Cluster& to, double doubt);

/// Throws Error naming the first constant that is missing, not positive, or outside its own range.
void check(const Calibration& calibration);

}  // namespace headroom
