// SPDX-License-Identifier: Apache-2.0
#include "calibrate/cuda/run_start.hpp"

#include <fmt/format.h>

#include "calibrate/cuda/errors.hpp"
#include "calibrate/cuda/memory.hpp"
#include "calibrate/cuda/schedule_kernels.hpp"
#include "calibrate/run/tokens.hpp"
#include "models/error.hpp"
#include "models/weights.hpp"

namespace headroom {
namespace {

constexpr float deviation = 0.02F;
constexpr double rotary_base = 10000;

void* tensor_of(const TensorTable& tensors, TensorId id, std::int64_t bytes) {
    const LiveTensor& tensor = tensors.at(id);
    if (tensor.bytes == bytes) return tensor.address;
    throw Error(fmt::format("'{}' has {} bytes where the model takes {}", tensor.name, tensor.bytes, bytes), "",
                "this is a bug: please report it with the command", ExitCode::failure);
}

/// Which part of every flat tensor a rank has.
struct ShardPlace {
    std::int64_t ranks, rank;
    std::int64_t size_of(std::int64_t whole) const { return whole / ranks; }
};

void fill_parameters(cudaStream_t stream, const Workload& work, const ShardPlace& shard, float* to) {
    const BlockWeights block = block_weights_of(work);
    const RootWeights root = root_weights_of(work);
    struct Ones {
        std::int64_t begin, end;
    };
    const auto fill = [&](std::int64_t whole, const Ones& one, const Ones& other, std::uint64_t seed) {
        const std::int64_t elements = shard.size_of(whole);
        fill_weights(stream, to, elements,
                     {shard.rank * elements, {{one.begin, one.end}, {other.begin, other.end}}, seed, deviation});
        to += elements;
    };
    for (std::int64_t layer = 0; layer < work.model.layers; ++layer) {
        // The norms of q and k lie behind the residual's.
        fill(block.size, {block.input_norm, block.query}, {block.residual_norm, block.gate},
             static_cast<std::uint64_t>(layer + 1));
    }
    const Ones final_norm{root.final_norm, root.final_norm + work.model.hidden};
    fill(root.size, final_norm, final_norm, 0);
}

}  // namespace

void fill_step(cudaStream_t stream, const RankPlan& rank, const TensorTable& tensors) {
    const Workload& work = rank.work;
    const std::int64_t ranks = work.recipe.sharding.degree;
    const ShardPlace shard{ranks, rank.rank % ranks};
    const std::int64_t parameters =
        work.model.layers * shard.size_of(block_weights_of(work).size) + shard.size_of(root_weights_of(work).size);
    const std::int64_t pairs = work.model.head_dim / 2;
    fill_parameters(stream, work, shard,
                    static_cast<float*>(tensor_of(tensors, rank.tensors.parameters, 4 * parameters)));
    check_cuda(cudaMemsetAsync(tensor_of(tensors, rank.tensors.moments, 8 * parameters), 0,
                               static_cast<std::size_t>(8 * parameters), stream),
               "cudaMemsetAsync");

    const auto upload = [&](void* to, const std::vector<std::int64_t>& values) {
        check_cuda(cudaMemcpyAsync(to, values.data(), 8 * values.size(), cudaMemcpyHostToDevice, stream),
                   "cudaMemcpyAsync");
    };
    const std::vector<std::int64_t> positions = row_positions(work, rank.rank);
    const std::vector<std::int64_t> tokens = tokens_and_labels(work, rank.rank);
    GrowingBuffer on_device;
    void* places = on_device.at_least(8 * work.tokens, stream);
    upload(places, positions);
    fill_rotary_table(stream,
                      static_cast<float2*>(tensor_of(tensors, rank.tensors.rotary_table, 8 * work.tokens * pairs)),
                      static_cast<const std::int64_t*>(places), work.tokens, static_cast<int>(pairs), rotary_base);
    upload(tensor_of(tensors, rank.tensors.tokens, 16 * work.tokens), tokens);
    check_cuda(cudaStreamSynchronize(stream), "cudaStreamSynchronize");
}

}  // namespace headroom
