// SPDX-License-Identifier: Apache-2.0
#include "models/methods/fpdt.hpp"

namespace headroom::fpdt {

Chunks chunks_of(const Workload& work) {
    const std::int64_t count = work.global_tokens() / work.recipe.chunk_tokens.value;
    return {count, work.tokens / count, work.query / count, work.key / count, work.hidden / count, work.lse / count};
}

bool runs_in_one_chunk(const Workload& work) {
    return !work.recipe.offload.chunks && work.recipe.chunk_tokens == work.recipe.context;
}

Attention chunk_kernel(const Workload& work, const Chunks& chunks, bool diagonal, bool backward) {
    const std::int64_t length = chunks.rows * work.recipe.ulysses / work.recipe.batch;
    return {.query_len = length,
            .key_len = length,
            .heads = static_cast<std::int32_t>(work.model.heads / work.recipe.ulysses),
            .kv_heads = static_cast<std::int32_t>(work.kv_heads / work.recipe.ulysses),
            .head_dim = static_cast<std::int32_t>(work.model.head_dim),
            .batch = static_cast<std::int32_t>(work.recipe.batch),
            .causal = diagonal,
            .backward = backward};
}

void to_host(Step& step, const char* name, Bytes bytes) {
    step.to.wait(Stream::device_to_host, step.to.record(Stream::compute));
    step.to.copy(name, Stream::device_to_host, {.to_host = true, .pinned = true, .fresh = false, .bytes = bytes.value});
}

void from_host(Step& step, const char* name, Bytes bytes) {
    if (bytes.value <= 0) return;
    step.to.copy(name, Stream::host_to_device,
                 {.to_host = false, .pinned = true, .fresh = false, .bytes = bytes.value});
}

void settle(Step& step) {
    step.to.wait(Stream::compute, step.to.record(Stream::host_to_device));
    step.to.host_wait("synchronise", Stream::compute);
}

void world_barrier(Step& step) {
    step.to.collective("world barrier", Stream::ulysses, CollectiveKind::barrier, CommGroup::context, {0}, true);
    step.to.host_wait("world barrier", Stream::compute);
}

Bytes pinned(Bytes bytes) { return {next_power_of_two(bytes.value)}; }

TensorId host_buffer(Step& step, const char* name, Bytes bytes) {
    return step.to.allocate(name, Group::attention, bytes, Place::host_pinned);
}

}  // namespace headroom::fpdt
