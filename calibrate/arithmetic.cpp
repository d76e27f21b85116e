// SPDX-License-Identifier: Apache-2.0
#include "calibrate/arithmetic.hpp"

#include <algorithm>

namespace headroom {
namespace {

using Views = std::array<View, 12>;

template <std::size_t count>
Views views(const std::array<Move, count>& moves) {
    Views all;
    for (std::size_t i = 0; i < count; ++i) {
        if (moves[i].bytes == 0) continue;
        all[2 * i] = moves[i].from;
        all[2 * i + 1] = moves[i].to;
    }
    return all;
}

struct ViewsOf {
    Views operator()(const Product& p) const { return {p.a.view, p.b.view, p.c.view}; }
    Views operator()(const Rotary& r) const { return {r.data, r.table}; }
    Views operator()(const AttentionCall& c) const {
        return {c.query,          c.key,          c.value,          c.output,      c.exponent, c.output_gradient,
                c.query_gradient, c.key_gradient, c.value_gradient, c.accumulator, c.delta,    c.workspace};
    }
    Views operator()(const Exchange& e) const { return {e.move.from, e.move.to}; }
    Views operator()(const PassOn& p) const { return views(p.moves); }
    Views operator()(const Transfer& t) const { return views(t.moves); }
    Views operator()(const Convert& c) const { return {c.from, c.to}; }
    Views operator()(const AddTo& a) const { return {a.sum, a.term}; }
    Views operator()(const Merge& m) const { return {m.sum, m.exponent, m.block, m.block_exponent}; }
    Views operator()(const SliceExponent& s) const { return {s.from, s.to}; }
    Views operator()(const Norm& n) const { return {n.in, n.weight, n.out}; }
    Views operator()(const NormBackward& n) const {
        return {n.in, n.weight, n.gradient, n.in_gradient, n.weight_gradient};
    }
    Views operator()(const Gate& g) const { return {g.gate, g.up, g.out}; }
    Views operator()(const GateBackward& g) const { return {g.gate, g.up, g.gradient, g.gate_gradient, g.up_gradient}; }
    Views operator()(const Sum& s) const { return {s.a, s.b, s.out}; }
    Views operator()(const Embedding& e) const { return {e.table, e.tokens, e.out}; }
    Views operator()(const EmbeddingBackward& e) const { return {e.gradient, e.tokens, e.table_gradient}; }
    Views operator()(const CrossEntropy& c) const { return {c.logits, c.labels, c.losses}; }
    Views operator()(const GatherShards& g) const { return {g.shard, g.whole}; }
    Views operator()(const ReduceScatter& r) const { return {r.whole, r.shard}; }
    Views operator()(const CopyIn& c) const { return {c.from, c.to}; }
    Views operator()(const Adam& a) const { return {a.parameter, a.first_moment, a.second_moment, a.gradient}; }
};

}  // namespace

std::array<View, 12> views_of(const Computation& computation) { return std::visit(ViewsOf{}, computation); }

ComputationRange described(const Schedule& schedule, std::uint32_t index) {
    const auto& all = schedule.descriptions;
    const auto first = std::lower_bound(all.begin(), all.end(), index,
                                        [](const Description& d, std::uint32_t at) { return d.event < at; });
    auto last = first;
    while (last != all.end() && last->event == index) ++last;
    return {all.data() + (first - all.begin()), all.data() + (last - all.begin())};
}

}  // namespace headroom
