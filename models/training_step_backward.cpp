// SPDX-License-Identifier: Apache-2.0
#include "models/step_writer.hpp"

namespace headroom {

void TrainingStep::begin_backward() {
    to_.segment("loss and head backward", Phase::backward);
    if (fsdp()) {
        to_.release(root_weights_);
        gather("gather root", "all-gather output of root", work_.model.layers, root_flat_);
        to_.wait(Stream::compute, to_.record(Stream::all_gather));
        to_.allocate_again(root_weights_, "embedding, final norm and head", Group::parameters, root_weights());
        step_.copy("copy out root", 2 * root_weights());
        to_.computes(Transfer{{Move{root_flat_, root_weights_, root_weights().value}}});
        to_.release(root_flat_, flat_);  // the last block's was kept since its forward
    }
    loss_backward(step_, loss_kept_, hidden_, gradient_, loss_operands());
    // The norm's gradient belongs to the root group, not to the block that comes next.
    final_norm_gradient_ = weight_gradients_.back();
    weight_gradients_.resize(block_gradients_);
}

/// The gradients, each at its place of `to`, in fp32.
void TrainingStep::copy_in(std::initializer_list<GradientPlace> gradients, TensorId to) {
    for (const GradientPlace& one : gradients) {
        to_.computes(CopyIn{one.gradient, View(to) + 4 * one.place, one.elements});
    }
}

/// The reduce-scatter input of the block before lives until its collective is done.
void TrainingStep::release_reduce_input() {
    if (!reduce_pending_) return;
    to_.wait(Stream::compute, to_.record(Stream::reduce_scatter));
    to_.release(reduce_input_);
}

/// Unsharded gradients of a block: cast into the reduce-scatter input, which lives until the next block's is needed.
void TrainingStep::reduce_block(const BlockRole& role) {
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
    release_reduce_input();
    reduce_pending_ = true;
    to_.allocate_again(reduce_input_, "reduce-scatter input of the last block", Group::gradients, reduced(parameters));
    to_.memory_bound("copy in gradients", MemoryKernel::copy, block_weights(), reduced(parameters));
    if (described()) {
        const BlockWeights at = block_weights_of(work_);
        auto made = weight_gradients_.begin();  // in the order of block_backward
        copy_in({{*made++, at.gate, at.size - at.gate},
                 {*made++, at.residual_norm, work_.model.hidden},
                 {*made++, at.output, work_.parameters.output}},
                reduce_input_);
        if (work_.model.qk_norm != QkNorm::none) {
            copy_in({{*made++, at.query_norm, work_.model.qk_norm_weights()}}, reduce_input_);
        }
        copy_in({{*made++, at.query, work_.parameters.query},
                 {*made++, at.key, work_.parameters.key_value},
                 {*made++, at.input_norm, work_.model.hidden}},
                reduce_input_);
    }
    for (const TensorId tensor : weight_gradients_) to_.release(tensor);
    to_.use(Stream::reduce_scatter);
    if (described()) gradient_shards_ = to_.reserve();
    to_.allocate_again(gradient_shards_, "gradient shards", Group::states,
                       reduced(divide_round_up(parameters, recipe().sharding.degree)));
    to_.use(Stream::compute);
    to_.wait(Stream::reduce_scatter, to_.record(Stream::compute));
    to_.collective("reduce-scatter block", Stream::reduce_scatter, CollectiveKind::reduce_scatter, CommGroup::sharding,
                   reduced(parameters), false);
    if (!described()) return;
    to_.computes(ReduceScatter{reduce_input_, gradient_shards_, block_part()});
    outside_->gradients[static_cast<std::size_t>(role.index)] = gradient_shards_;
    weight_gradients_.clear();
}

void TrainingStep::backward_block(const BlockRole& role) {
    to_.segment(role.name, backward_phase(), role.repeat);
    if (states_.gathers_blocks && fsdp()) {
        if (!role.last) {
            to_.wait(Stream::compute, to_.record(Stream::all_gather));
            to_.allocate_again(weights_, "weights of the running block", Group::parameters, block_weights());
            step_.copy("copy out block", 2 * block_weights());
            to_.computes(Transfer{{Move{flat_, weights_, block_weights().value}}});
            to_.release(flat_);
        }
        if (!role.first) {
            to_.wait(Stream::all_gather, to_.record(Stream::compute));
            gather("gather block ahead", "all-gather output of the next block", role.index - 1, flat_);
        }
    } else if (states_.gathers_blocks) {
        fetch_shard(block_weights());
        to_.collective("gather block", Stream::all_gather, CollectiveKind::all_gather, CommGroup::sharding,
                       block_weights(), false);
        to_.wait(Stream::compute, to_.record(Stream::all_gather));
    }
    const bool offloads = checkpoints() && offloads_input(role);
    const BlockHeld& held = this->held(role);
    if (offloads) restore_input(held);
    if (described()) {
        give_operands(offloads ? restored_ : held.input);
        forward_backward_of_block(held.kept);
    } else {
        to_.call(backward_);
    }
    if (offloads) {
        if (offloaded_table().value > 0) to_.release(restored_table_);
        to_.release(restored_);
    } else {
        to_.release(held.input);
    }
    reduce_block(role);
}

void TrainingStep::finish_backward() {
    to_.segment("embedding backward", Phase::backward);
    const ParameterCount& count = work_.parameters;
    const std::int64_t table = work_.model.vocabulary * work_.model.hidden;
    TensorId embedding = to_.allocate("gradient of embedding", Group::gradients, work_.weights(count.embedding));
    step_.eager("embedding backward", 2 * work_.hidden + work_.weights(count.embedding));
    if (described()) {
        to_.computes(EmbeddingBackward{gradient_, outside_->tokens, embedding, work_.tokens, work_.model.hidden,
                                       work_.model.vocabulary});
    }
    to_.release(gradient_);
    if (work_.model.tied_embeddings) {
        step_.eager("add gradients of tied table", 3 * work_.weights(table));
        to_.computes(AddTo{loss_kept_.weight_gradient, embedding, table, false});
        to_.release(embedding);
        embedding = no_tensor;
    }
    if (!fsdp()) {
        step_.release(embedding, loss_kept_.weight_gradient, final_norm_gradient_);
        return;
    }
    to_.release(root_weights_);
    release_reduce_input();
    const TensorId input = to_.allocate("reduce-scatter input of root", Group::gradients, reduced(count.root()));
    to_.memory_bound("copy in gradients", MemoryKernel::copy, root_weights(), reduced(count.root()));
    if (described()) {
        const RootWeights at = root_weights_of(work_);
        if (embedding != no_tensor) copy_in({{embedding, at.embedding, table}}, input);
        copy_in(
            {{final_norm_gradient_, at.final_norm, work_.model.hidden}, {loss_kept_.weight_gradient, at.head, table}},
            input);
    }
    // The loss node still holds the head's gradient here.
    step_.release(embedding, final_norm_gradient_);
    to_.use(Stream::reduce_scatter);
    root_shard_ = to_.allocate("gradient shard of root", Group::states,
                               reduced(divide_round_up(count.root(), recipe().sharding.degree)));
    to_.use(Stream::compute);
    to_.wait(Stream::reduce_scatter, to_.record(Stream::compute));
    to_.collective("reduce-scatter root", Stream::reduce_scatter, CollectiveKind::reduce_scatter, CommGroup::sharding,
                   reduced(count.root()), false);
    if (described()) {
        to_.computes(ReduceScatter{input, root_shard_, root_part()});
        outside_->gradients.back() = root_shard_;
    }
    to_.wait(Stream::compute, to_.record(Stream::reduce_scatter));
    step_.release(loss_kept_.weight_gradient, input);
}

void TrainingStep::optimizer() {
    to_.segment("optimizer", Phase::optimizer);
    const std::int64_t local = divide_round_up(work_.parameters.total(), recipe().sharding.degree);
    if (!recipe().offload.optimizer) {
        to_.memory_bound("clip and AdamW", MemoryKernel::optimizer, {24 * local}, {16 * local}, 4);
        for (std::int64_t block = 0; described() && block <= work_.model.layers; ++block) {
            to_.computes(adam(block));
        }
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
    if (described()) {
        for (std::size_t i = 0; i + 1 < outside_->gradients.size(); ++i) to_.release(outside_->gradients[i]);
        return;
    }
    to_.segment("clear gradients", Phase::optimizer, work_.model.layers);
    to_.release(gradient_shards_);
}

/// Of one block's part of the states, or of the root's behind them.
Adam TrainingStep::adam(std::int64_t block) const {
    const std::int64_t states = work_.model.layers * block_part() + root_part();
    const View first = part(outside_->moments, block);
    return {part(outside_->parameters, block), first, first + 4 * states,
            outside_->gradients[static_cast<std::size_t>(block)],
            block == work_.model.layers ? root_part() : block_part()};
}

}  // namespace headroom
