// SPDX-License-Identifier: Apache-2.0
#include "models/step_writer.hpp"

namespace headroom {

void TrainingStep::begin_backward() {
    to_.segment("loss and head backward", Phase::backward);
    if (fsdp()) {
        to_.release(root_weights_);
        gather("gather root", "all-gather output of root", root_weights(), root_flat_);
        to_.wait(Stream::compute, to_.record(Stream::all_gather));
        to_.allocate_again(root_weights_, "embedding, final norm and head", Group::parameters, root_weights());
        step_.copy("copy out root", 2 * root_weights());
        to_.release(root_flat_, flat_);  // the last block's was kept since its forward
    }
    loss_backward(step_, loss_kept_, hidden_, gradient_);
    // The norm's gradient belongs to the root group, not to the block that comes next.
    final_norm_gradient_ = weight_gradients_.back();
    weight_gradients_.resize(block_gradients_);
}

/// Unsharded gradients of a block: cast into the reduce-scatter input, which lives until the next block's is needed.
void TrainingStep::reduce_block() {
    if (!fsdp()) {
        // Into DeepSpeed's bucket, or added to the full gradients.
        step_.copy("copy gradients to bucket", 2 * block_weights());
        if (recipe().sharding.strategy != ShardingStrategy::none && work_.gpus > 1) {
            to_.wait(Stream::reduce_scatter, to_.record(Stream::compute));
            to_.collective("reduce gradients", Stream::reduce_scatter, CollectiveKind::reduce_scatter,
                           CommGroup::sharding, block_weights(), false);
        }
        for (const TensorId tensor : weight_gradients_) to_.release(tensor);
        return;
    }
    const std::int64_t parameters = work_.parameters.block();
    to_.release(weights_);
    if (reduce_pending_) to_.release(reduce_input_);
    reduce_pending_ = true;
    to_.allocate_again(reduce_input_, "reduce-scatter input of the last block", Group::gradients, reduced(parameters));
    to_.memory_bound("copy in gradients", MemoryKernel::copy, block_weights(), reduced(parameters));
    for (const TensorId tensor : weight_gradients_) to_.release(tensor);
    to_.use(Stream::reduce_scatter);
    to_.allocate_again(gradient_shards_, "gradient shards", Group::states,
                       reduced(divide_round_up(parameters, recipe().sharding.degree)));
    to_.use(Stream::compute);
    to_.wait(Stream::reduce_scatter, to_.record(Stream::compute));
    to_.collective("reduce-scatter block", Stream::reduce_scatter, CollectiveKind::reduce_scatter, CommGroup::sharding,
                   reduced(parameters), false);
}

void TrainingStep::backward_block(const BlockRole& role) {
    to_.segment(role.name, backward_phase(), role.repeat);
    if (states_.gathers_blocks && fsdp()) {
        if (!role.last) {
            to_.wait(Stream::compute, to_.record(Stream::all_gather));
            to_.allocate_again(weights_, "weights of the running block", Group::parameters, block_weights());
            step_.copy("copy out block", 2 * block_weights());
            to_.release(flat_);
        }
        if (!role.first) {
            to_.wait(Stream::all_gather, to_.record(Stream::compute));
            gather("gather block ahead", "all-gather output of the next block", block_weights(), flat_);
        }
    } else if (states_.gathers_blocks) {
        fetch_shard(block_weights());
        to_.collective("gather block", Stream::all_gather, CollectiveKind::all_gather, CommGroup::sharding,
                       block_weights(), false);
        to_.wait(Stream::compute, to_.record(Stream::all_gather));
    }
    const bool offloads = checkpoints() && offloads_input(role);
    if (offloads) restore_input();
    to_.call(backward_);
    if (offloads) {
        if (offloaded_table().value > 0) to_.release(restored_table_);
        to_.release(restored_);
    } else {
        to_.release(hidden_);
    }
    reduce_block();
}

void TrainingStep::finish_backward() {
    to_.segment("embedding backward", Phase::backward);
    const ParameterCount& count = work_.parameters;
    const std::int64_t table = work_.model.vocabulary * work_.model.hidden;
    TensorId embedding = to_.allocate("gradient of embedding", Group::gradients, work_.weights(count.embedding));
    step_.eager("embedding backward", 2 * work_.hidden + work_.weights(count.embedding));
    to_.release(gradient_);
    if (work_.model.tied_embeddings) {
        step_.eager("add gradients of tied table", 3 * work_.weights(table));
        to_.release(embedding);
        embedding = no_tensor;
    }
    if (!fsdp()) {
        step_.release(embedding, loss_kept_.weight_gradient, final_norm_gradient_);
        return;
    }
    to_.release(root_weights_);
    if (reduce_pending_) to_.release(reduce_input_);
    const TensorId input = to_.allocate("reduce-scatter input of root", Group::gradients, reduced(count.root()));
    to_.memory_bound("copy in gradients", MemoryKernel::copy, root_weights(), reduced(count.root()));
    // The loss node still holds the head's gradient here.
    step_.release(embedding, final_norm_gradient_);
    to_.use(Stream::reduce_scatter);
    root_shard_ = to_.allocate("gradient shard of root", Group::states,
                               reduced(divide_round_up(count.root(), recipe().sharding.degree)));
    to_.use(Stream::compute);
    to_.wait(Stream::reduce_scatter, to_.record(Stream::compute));
    to_.collective("reduce-scatter root", Stream::reduce_scatter, CollectiveKind::reduce_scatter, CommGroup::sharding,
                   reduced(count.root()), false);
    to_.wait(Stream::compute, to_.record(Stream::reduce_scatter));
    step_.release(loss_kept_.weight_gradient, input);
}

void TrainingStep::optimizer() {
    to_.segment("optimizer", Phase::optimizer);
    const std::int64_t local = divide_round_up(work_.parameters.total(), recipe().sharding.degree);
    if (!recipe().offload.optimizer) {
        to_.memory_bound("clip and AdamW", MemoryKernel::optimizer, {24 * local}, {16 * local}, 4);
    } else {
        to_.copy("gradients to host", Stream::compute,
                 {.to_host = true, .pinned = true, .fresh = false, .bytes = work_.weights(local).value});
        to_.host_wait("optimizer on the host", Stream::compute);
        to_.host_work("AdamW on the host", HostWork::Kind::other, local);
        to_.copy("parameters from host", Stream::compute,
                 {.to_host = false, .pinned = true, .fresh = false, .bytes = work_.weights(local).value});
    }
    TensorId subgroup = no_tensor;
    if (!fsdp() && !recipe().offload.optimizer && recipe().precision.compute != NumberFormat::fp32) {
        // DeepSpeed widens the gradient of one sub-group of at most 1e9 elements for the step.
        subgroup = to_.allocate("gradients of a sub-group, fp32", Group::gradients,
                                {4 * std::min<std::int64_t>(local, 1'000'000'000)});
    }
    step_.release(subgroup);
    if (!fsdp()) return;
    to_.release(root_shard_);
    to_.segment("clear gradients", Phase::optimizer, work_.model.layers);
    to_.release(gradient_shards_);
}

}  // namespace headroom
