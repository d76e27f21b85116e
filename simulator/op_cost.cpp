// SPDX-License-Identifier: Apache-2.0
#include "simulator/op_cost.hpp"

#include <algorithm>

#include "simulator/rates.hpp"

namespace headroom {

namespace {

constexpr std::size_t memo_slots = 256;  // a power of two; a collision only costs a second evaluation

CostClass collective_class(CollectiveKind kind, bool crosses) {
    switch (kind) {
        case CollectiveKind::all_to_all:
            return crosses ? CostClass::all_to_all_across : CostClass::all_to_all;
        case CollectiveKind::all_gather:
            return crosses ? CostClass::all_gather_across : CostClass::all_gather;
        case CollectiveKind::reduce_scatter:
            return crosses ? CostClass::reduce_scatter_across : CostClass::reduce_scatter;
        case CollectiveKind::send_recv:
            return crosses ? CostClass::ring_across : CostClass::ring;
        case CollectiveKind::barrier:
            break;
    }
    return CostClass::host_gap;
}

std::uint32_t attention_domain(const AttentionKernelConstants& kernel, const Attention& shape) {
    const auto& masks = kernel.curves[shape.backward ? 1 : 0];
    std::uint32_t domain = 0;
    const AttentionCurve* curve = &masks[shape.causal ? 1 : 0];
    if (!curve->known()) {
        domain |= bits(Domain::attention_mask);
        curve = &masks[shape.causal ? 0 : 1];
    }
    const std::int64_t length = shape.backward ? shape.query_len : shape.key_len;
    if (length < curve->shortest || length > curve->longest) domain |= bits(Domain::attention_length);
    return domain;
}

std::uint64_t word(std::int64_t value) { return static_cast<std::uint64_t>(value); }
std::uint64_t pair(std::int32_t high, std::int32_t low) {
    return (static_cast<std::uint64_t>(static_cast<std::uint32_t>(high)) << 32) | static_cast<std::uint32_t>(low);
}

}  // namespace

Part part_of(CostClass cost_class) {
    switch (cost_class) {
        case CostClass::attention:
            return Part::attention;
        case CostClass::gemm:
            return Part::gemm;
        case CostClass::memory_bound:
            return Part::memory_bound;
        case CostClass::loss_gemm:
        case CostClass::loss_memory:
            return Part::loss;
        case CostClass::all_to_all:
        case CostClass::all_to_all_across:
            return Part::all_to_all;
        case CostClass::ring:
        case CostClass::ring_across:
            return Part::ring;
        case CostClass::all_gather:
        case CostClass::all_gather_across:
            return Part::all_gather;
        case CostClass::reduce_scatter:
        case CostClass::reduce_scatter_across:
            return Part::reduce_scatter;
        case CostClass::copy_pinned:
        case CostClass::copy_pageable:
            return Part::copies;
        case CostClass::host_gap:
        case CostClass::host_work:
            break;
    }
    return Part::host;
}

std::vector<std::string_view> describe_domain(std::uint32_t domain) {
    static constexpr std::array<std::string_view, 7> sentences{
        "the attention kernel was not measured at this length",
        "the attention kernel was not measured under this mask",
        "matrix products are narrower than those measured",
        "collectives were measured on another number of GPUs",
        "collectives cross nodes, where the fabric decides",
        "pinned copies by every GPU of a node at once were not measured",
        "pageable host copies depend on the host's memory",
    };
    std::vector<std::string_view> result;
    for (std::size_t i = 0; i < sentences.size(); ++i) {
        if ((domain >> i) & 1U) result.push_back(sentences[i]);
    }
    return result;
}

OpCost cost_of(const Event& event, Phase phase, const Calibration& calibration, const Topology& topology,
               AttentionKernel kernel) {
    OpCost cost;
    cost.launch = calibration.host.launch.value;
    const bool loss = phase == Phase::loss;
    switch (event.kind) {
        case EventKind::gemm: {
            const Gemm& gemm = event.gemm;
            cost.seconds = gemm_seconds(calibration, gemm);
            cost.later_launches = std::max(0, gemm.count - 1) * cost.launch;
            cost.cost_class = loss ? CostClass::loss_gemm : CostClass::gemm;
            const auto& points = calibration.gemm.points;
            if (!points.empty() && std::min(gemm.m, gemm.n) < points.front().n) cost.domain = bits(Domain::gemm_width);
            break;
        }
        case EventKind::attention:
            cost.seconds = attention_seconds(calibration, kernel, event.attention);
            cost.cost_class = CostClass::attention;
            cost.domain = attention_domain(calibration.attention[static_cast<std::size_t>(kernel)], event.attention);
            break;
        case EventKind::memory_bound:
            cost.seconds = memory_bound_seconds(calibration, event.memory_bound);
            cost.later_launches = std::max(0, event.memory_bound.count - 1) * cost.launch;
            cost.cost_class = loss ? CostClass::loss_memory : CostClass::memory_bound;
            break;
        case EventKind::collective: {
            const Collective& op = event.collective;
            const GroupShape& group = topology.groups[static_cast<std::size_t>(op.group)];
            cost.seconds = collective_seconds(calibration, op, group);
            cost.launch = collective_launch_seconds(calibration, op.kind);
            cost.cost_class = collective_class(op.kind, group.crosses());
            if (op.kind == CollectiveKind::barrier) break;
            if (group.crosses()) {
                cost.domain = bits(Domain::across_nodes);
            } else if (group.ranks > 1 && op.kind != CollectiveKind::send_recv &&
                       group.ranks != link_of(calibration, op.kind, group.ranks).ranks) {
                cost.domain = bits(Domain::group_size);
            }
            break;
        }
        case EventKind::copy:
            cost.seconds = copy_seconds(calibration, event.copy, topology.gpus_per_node);
            cost.cost_class = event.copy.pinned ? CostClass::copy_pinned : CostClass::copy_pageable;
            if (!event.copy.pinned) {
                cost.domain = bits(Domain::pageable);
            } else if (topology.gpus_per_node > 1) {
                cost.domain = bits(Domain::every_gpu_copies);
            }
            break;
        case EventKind::host_work:
            cost.seconds = host_work_seconds(calibration, event.host_work);
            cost.launch = 0;
            cost.cost_class = CostClass::host_work;
            break;
        case EventKind::allocate:
        case EventKind::release:
        case EventKind::phase:
        case EventKind::loop:
        case EventKind::call:
        case EventKind::record:
        case EventKind::wait:
        case EventKind::host_wait:
            break;
    }
    return cost;
}

void CostMemo::clear() {
    slots_.resize(memo_slots);
    ++generation_;
}

CostMemo::Key CostMemo::key_of(const Event& event, Phase phase) {
    Key key;
    key.words[0] = static_cast<std::uint64_t>(event.kind) | (phase == Phase::loss ? 256U : 0U);
    switch (event.kind) {
        case EventKind::gemm:
            key.words[1] = word(event.gemm.m);
            key.words[2] = word(event.gemm.n);
            key.words[3] = word(event.gemm.k);
            key.words[4] = word(event.gemm.count);
            break;
        case EventKind::attention: {
            const Attention& shape = event.attention;
            key.words[0] |= (shape.causal ? 512U : 0U) | (shape.backward ? 1024U : 0U);
            key.words[1] = word(shape.query_len);
            key.words[2] = word(shape.key_len);
            key.words[3] = pair(shape.heads, shape.kv_heads);
            key.words[4] = pair(shape.head_dim, shape.batch);
            break;
        }
        case EventKind::collective:
            key.words[1] = word(event.collective.bytes);
            key.words[2] = pair(static_cast<std::int32_t>(event.collective.kind),
                                static_cast<std::int32_t>(event.collective.group));
            break;
        case EventKind::memory_bound:
        case EventKind::copy:
        case EventKind::host_work:
        case EventKind::allocate:
        case EventKind::release:
        case EventKind::phase:
        case EventKind::loop:
        case EventKind::call:
        case EventKind::record:
        case EventKind::wait:
        case EventKind::host_wait:
            break;
    }
    return key;
}

const OpCost& CostMemo::lookup(const Event& event, Phase phase, const Calibration& calibration,
                               const Topology& topology, AttentionKernel kernel) {
    if (event.kind == EventKind::memory_bound || event.kind == EventKind::copy || event.kind == EventKind::host_work) {
        // A division or two: quicker than to look them up.
        return direct_ = cost_of(event, phase, calibration, topology, kernel);
    }
    const Key key = key_of(event, phase);
    // Products that do not wait for each other; only the high half of one depends on all bits of its word.
    const std::uint64_t hash = (key.words[0] * 0x9E3779B97F4A7C15U) ^ (key.words[1] * 0xC2B2AE3D27D4EB4FU) ^
                               (key.words[2] * 0x165667B19E3779F9U) ^ (key.words[3] * 0xD6E8FEB86659FD93U) ^
                               (key.words[4] * 0xA0761D6478BD642FU);
    Slot& slot = slots_[(hash >> 40) & (memo_slots - 1)];
    if (slot.generation != generation_ || slot.key != key) {
        slot = {key, cost_of(event, phase, calibration, topology, kernel), generation_};
    }
    return slot.cost;
}

}  // namespace headroom
