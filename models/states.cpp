// SPDX-License-Identifier: Apache-2.0
#include "models/states.hpp"

#include <algorithm>

namespace headroom {
namespace {

// DeepSpeed's defaults, in elements (stage3.py: reduce_bucket_size, max_live_parameters).
constexpr std::int64_t reduce_bucket_elements = 500'000'000;
constexpr std::int64_t live_parameter_elements = 1'000'000'000;

}  // namespace

StateBytes state_bytes(const Workload& work) {
    const auto& precision = work.recipe.precision;
    const std::int64_t total = work.parameters.total();
    const std::int64_t shards = work.recipe.sharding.degree;
    const std::int64_t compute = bytes_per_element(precision.compute);
    const std::int64_t moments = 2 * bytes_per_element(precision.optimizer);
    const std::int64_t shard = divide_round_up(total, shards);
    StateBytes bytes;

    if (work.recipe.sharding.strategy == ShardingStrategy::fsdp) {
        bytes.parameters = {bytes_per_element(precision.parameters) * shard};
        bytes.optimizer = {moments * shard};
        bytes.gathers_blocks = true;
        bytes.fsdp = true;
        return bytes;
    }
    // DeepSpeed (and the unsharded case): weights in the compute format, a master copy beside them.
    const bool mixed = precision.compute != precision.parameters;
    const std::int64_t master = mixed ? bytes_per_element(precision.parameters) : 0;
    const ShardingStrategy strategy = work.recipe.sharding.strategy;
    const bool shards_parameters = strategy == ShardingStrategy::zero3;
    const bool shards_gradients = shards_parameters || strategy == ShardingStrategy::zero2;
    const bool shards_optimizer = shards_gradients || strategy == ShardingStrategy::zero1;
    bytes.parameters = {compute * (shards_parameters ? shard : total)};
    bytes.gradients = {compute * (shards_gradients ? shard : total)};
    bytes.optimizer = {(master + moments) * (shards_optimizer ? shard : total)};
    if (shards_gradients) bytes.reduce_bucket = {compute * std::min(reduce_bucket_elements, total)};
    if (shards_parameters) {
        bytes.live_parameters = {compute * std::min(live_parameter_elements, total)};
        bytes.gathers_blocks = true;
    }
    return bytes;
}

}  // namespace headroom
