// SPDX-License-Identifier: Apache-2.0
// Which bytes each computation reads and writes.
#include <algorithm>

#include "calibrate/interpreter.hpp"

namespace headroom {
namespace {

/// Bytes from the first to the last element of all batches of `matrix`, stored [rows][columns].
std::int64_t extent(const Matrix& matrix, std::int64_t rows, std::int64_t columns, std::int64_t batch,
                    std::int64_t element) {
    if (matrix.transposed) std::swap(rows, columns);
    return ((batch - 1) * matrix.batch_stride + (rows - 1) * matrix.row_stride + columns) * element;
}

struct Lister {
    const Attention& shape;
    std::int64_t element;
    int ranks;
    std::vector<Access> list;

    void read(View view, std::int64_t bytes) { add({view, bytes, false, true}); }
    void write(View view, std::int64_t bytes) { add({view, bytes, true, false}); }
    void update(View view, std::int64_t bytes) { add({view, bytes, true, true}); }
    void add(const Access& access) {
        if (!access.view.empty() && access.bytes > 0) list.push_back(access);
    }

    void operator()(const Product& p) {
        read(p.a.view, extent(p.a, p.m, p.k, p.batch, element));
        read(p.b.view, extent(p.b, p.k, p.n, p.batch, element));
        add({p.c.view, extent(p.c, p.m, p.n, p.batch, element), true, p.accumulate});
    }
    void operator()(const Rotary& r) {
        read(r.table, r.rows * r.head_dim * 4);
        update(r.data, r.blocks * r.rows * r.width * element);
    }
    void operator()(const AttentionCall& call) {
        const std::int64_t query = shape.query_len * shape.heads * shape.head_dim * element;
        const std::int64_t key = shape.key_len * shape.kv_heads * shape.head_dim * element;
        const std::int64_t exponent = shape.query_len * shape.heads * 4;
        read(call.query, query);
        read(call.key, key);
        read(call.value, key);
        if (!shape.backward) {
            write(call.output, query);
            write(call.exponent, exponent);
            return;
        }
        read(call.output, query);
        read(call.exponent, exponent);
        read(call.output_gradient, query);
        write(call.query_gradient, query);
        write(call.key_gradient, key);
        write(call.value_gradient, key);
        write(call.accumulator, 2 * query);
        write(call.delta, exponent);
        write(call.workspace, call.workspace_bytes);
    }
    void operator()(const Exchange& e) { moved(e.move); }
    void operator()(const PassOn& p) {
        for (const Move& move : p.moves) moved(move);
    }
    void operator()(const Transfer& t) {
        for (const Move& move : t.moves) moved(move);
    }
    void moved(const Move& move) {
        read(move.from, move.bytes);
        write(move.to, move.bytes);
    }
    void operator()(const Convert& c) {
        read(c.from, c.elements * element * (c.widen ? 1 : 2));
        write(c.to, c.elements * element * (c.widen ? 2 : 1));
    }
    void operator()(const AddTo& a) {
        read(a.term, a.elements * element);
        update(a.sum, a.elements * element * (a.wide_sum ? 2 : 1));
    }
    void operator()(const Merge& m) {
        const std::int64_t row = std::int64_t{m.heads} * m.head_dim * element;
        read(m.block, m.rows * row);
        read(m.block_exponent, m.rows * m.heads * 4);
        add({m.sum + 2 * m.first_row * row, 2 * m.rows * row, true, !m.first});
        add({m.exponent, m.total_rows * m.heads * 4, true, !m.first});
    }
    void operator()(const SliceExponent& s) {
        read(s.from, s.total_rows * s.heads * 4);
        write(s.to, s.rows * s.heads * 4);
    }
    void operator()(const Norm& n) {
        read(n.in, n.rows * n.width * element);
        read(n.weight, n.width * element);
        write(n.out, n.rows * n.width * element);
    }
    void operator()(const NormBackward& n) {
        const std::int64_t rows = n.rows * n.width * element;
        read(n.in, rows);
        read(n.weight, n.width * element);
        read(n.gradient, rows);
        write(n.in_gradient, rows);
        write(n.weight_gradient, n.width * element);
    }
    void operator()(const Gate& g) {
        read(g.gate, g.elements * element);
        read(g.up, g.elements * element);
        write(g.out, g.elements * element);
    }
    void operator()(const GateBackward& g) {
        for (const View& in : {g.gate, g.up, g.gradient}) read(in, g.elements * element);
        for (const View& out : {g.gate_gradient, g.up_gradient}) write(out, g.elements * element);
    }
    void operator()(const Sum& s) {
        read(s.a, s.elements * element);
        read(s.b, s.elements * element);
        write(s.out, s.elements * element);
    }
    void operator()(const Embedding& e) {
        read(e.table, e.vocabulary * e.width * element);
        read(e.tokens, e.rows * 8);
        write(e.out, e.rows * e.width * element);
    }
    void operator()(const EmbeddingBackward& e) {
        read(e.gradient, e.rows * e.width * element);
        read(e.tokens, e.rows * 8);
        write(e.table_gradient, e.vocabulary * e.width * element);
    }
    void operator()(const CrossEntropy& c) {
        update(c.logits, c.rows * c.columns * element);
        read(c.labels, c.rows * 8);
        write(c.losses, c.rows * 4);
    }
    void operator()(const GatherShards& g) {
        read(g.shard, g.elements * 4);
        write(g.whole, ranks * g.elements * element);
    }
    void operator()(const ReduceScatter& r) {
        read(r.whole, ranks * r.elements * 4);
        write(r.shard, r.elements * 4);
    }
    void operator()(const CopyIn& c) {
        read(c.from, c.elements * element);
        write(c.to, c.elements * 4);
    }
    void operator()(const Adam& a) {
        for (const View& state : {a.parameter, a.first_moment, a.second_moment}) update(state, a.elements * 4);
        read(a.gradient, a.elements * 4);
    }
};

}  // namespace

std::vector<Access> accesses(const Computation& computation, const Attention& shape, std::int64_t element, int ranks) {
    Lister lister{shape, element, ranks, {}};
    std::visit(lister, computation);
    return lister.list;
}

}  // namespace headroom
