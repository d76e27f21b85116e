// SPDX-License-Identifier: Apache-2.0
// What the forward and the backward of lean FPDT share: where chunks lie, how they travel, and their projections.
#pragma once

#include <array>

#include "models/methods/fpdt.hpp"

namespace headroom::fpdt {

/// Places of one chunk in the buffers that forward leaves: host records, or whole tensors on the device. A forward that
/// keeps nothing has only those of k and v.
struct Layout {
    const Workload& work;
    const Chunks& chunks;
    const Kept& kept;
    bool offload;
    bool keep = true;

    Bytes record() const { return chunks.hidden + 2 * chunks.query + 2 * chunks.key + chunks.lse; }
    View part(TensorId tensor, Bytes size, std::int64_t i, Bytes before) const {
        return offload ? View(kept.key_raw) + (i * record().value + before.value) : View(tensor) + i * size.value;
    }
    View query(std::int64_t i) const { return part(kept.query, chunks.query, i, {0}); }
    View output(std::int64_t i) const { return part(kept.output, chunks.query, i, chunks.query); }
    View key(std::int64_t i) const { return part(kept.key, chunks.key, i, 2 * chunks.query); }
    View value(std::int64_t i) const { return part(kept.value, chunks.key, i, 2 * chunks.query + chunks.key); }
    View lse(std::int64_t i) const { return part(kept.lse, chunks.lse, i, 2 * chunks.query + 2 * chunks.key); }
    View input(std::int64_t i) const {  ///< of the normed input; only on the host
        return View(kept.key_raw) + (i * record().value + (2 * chunks.query + 2 * chunks.key + chunks.lse).value);
    }
};

/// One id for each chunk where the schedule is to be run; a plan needs only that there is one.
struct Syncs {
    SyncId first;
    bool many;
    Syncs(Step& step, std::int64_t count)
        : first(step.to.reserve_syncs(step.to.describing() ? count : 1)), many(step.to.describing()) {}
    SyncId operator[](std::int64_t i) const { return many ? first + static_cast<SyncId>(i) : first; }
};

/// Copies to the host after what the compute stream has so far; `stored` is recorded when they are done.
void store(Step& step, const char* name, Bytes bytes, const std::array<Move, 5>& moves, SyncId stored);
/// Copies into tensors just allocated, as soon as their memory is free and the host has the data.
void fetch(Step& step, const char* name, Bytes bytes, const std::array<Move, 5>& moves, SyncId stored, SyncId arrived);

std::int64_t kv_columns(const Workload& work);
/// Of q, k and v of one chunk.
std::array<Projection, 3> projections(const Step& step, const Chunks& chunks, View input);
/// Rotary embedding of q and k of chunk i, my tokens in blocks.
void turn(Step& step, const Chunks& chunks, std::int64_t i, View query, View key, bool back);

}  // namespace headroom::fpdt
