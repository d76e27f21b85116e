// SPDX-License-Identifier: Apache-2.0
// What FPDT's forward and backward share: the sizes of a chunk, and how chunks travel to the host and back.
#pragma once

#include "models/methods/method.hpp"

namespace headroom::fpdt {

struct Chunks {
    std::int64_t count;  ///< n = S/Cs
    std::int64_t rows;   ///< tokens of a chunk on a rank
    Bytes query;         ///< q
    Bytes key;           ///< k
    Bytes hidden;        ///< xc
    Bytes lse;           ///< of one chunk
};

Chunks chunks_of(const Workload& work);
/// Nothing is chunked and nothing goes to the host: plain Ulysses.
bool runs_in_one_chunk(const Workload& work);
/// One chunk of queries against one chunk of keys.
Attention chunk_kernel(const Workload& work, const Chunks& chunks, bool diagonal, bool backward);

/// Pinned copies on their own streams; to the host after what the compute stream has so far.
void to_host(Step& step, const char* name, Bytes bytes);
void from_host(Step& step, const char* name, Bytes bytes);
/// What was fetched may be used. The shipped code synchronises the host after every kernel, so a prefetch is one deep.
void settle(Step& step);
void world_barrier(Step& step);

/// PyTorch's pinned allocator hands out powers of two.
Bytes pinned(Bytes bytes);
TensorId host_buffer(Step& step, const char* name, Bytes bytes);

}  // namespace headroom::fpdt
