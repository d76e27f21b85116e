// SPDX-License-Identifier: Apache-2.0
#include "models/training_step.hpp"

#include <algorithm>
#include <array>

#include "models/loss.hpp"
#include "models/states.hpp"

namespace headroom {
namespace {

/// cuBLAS keeps 32 MiB for each handle and stream on Hopper; forward and autograd threads have a handle each.
constexpr std::int64_t cublas_workspaces = 2 * 32 * mebi;

/// Which of the blocks a segment stands for. The middle ones are alike and repeat.
struct BlockRole {
    bool first, last;
    std::int64_t repeat;
    const char* name;
};

class TrainingStep {
 public:
    TrainingStep(const Workload& work, Schedule& schedule)
        : work_(work),
          traits_(traits_of(work.recipe.implementation)),
          states_(state_bytes(work)),
          to_(schedule),
          step_{to_, work_, traits_, weight_gradients_} {
        weight_gradients_.reserve(16);
        const std::int64_t layers = work.model.layers;
        if (layers == 1) {
            roles_[0] = {true, true, 1, "the only block"};
            role_count_ = 1;
        } else {
            roles_[0] = {true, false, 1, "first block"};
            roles_[1] = {false, false, layers - 2, "middle blocks"};
            roles_[2] = {false, true, 1, "last block"};
            role_count_ = 3;
        }
    }

    void build() {
        write_routines();
        setup();
        begin_forward();
        for (std::size_t i = 0; i < role_count_; ++i) forward_block(roles_[i]);
        loss();
        begin_backward();
        for (std::size_t i = role_count_; i-- > 0;) backward_block(roles_[i]);
        finish_backward();
        optimizer();
        to_.finish();
    }

 private:
    const Recipe& recipe() const { return work_.recipe; }
    bool checkpoints() const { return recipe().checkpointing == Checkpointing::full; }
    bool fsdp() const { return states_.fsdp; }
    Phase backward_phase() const { return checkpoints() ? Phase::recompute : Phase::backward; }
    bool offloads_input(const BlockRole& role) const {
        return recipe().offload.block_inputs != HostPlace::none && !(role.first && traits_.first_block_stays);
    }
    /// Hidden states that stay on the device until backward are saved tensors, the others pass through.
    Group input_group(const BlockRole& role) const {
        return checkpoints() && offloads_input(role) ? Group::residual : Group::saved;
    }
    Place host_place() const {
        return recipe().offload.block_inputs == HostPlace::pinned ? Place::host_pinned : Place::host_pageable;
    }
    Bytes offloaded_table() const { return traits_.offloads_rotary ? work_.rotary : Bytes{0}; }
    Bytes block_weights() const { return work_.weights(work_.parameters.block()); }
    Bytes root_weights() const { return work_.weights(work_.parameters.root()); }
    Bytes reduced(std::int64_t parameters) const {
        return {bytes_per_element(recipe().precision.reduction) * parameters};
    }

    void write_routines();
    void setup();
    void begin_forward();
    void forward_block(const BlockRole& role);
    void loss();
    void begin_backward();
    void backward_block(const BlockRole& role);
    void finish_backward();
    void optimizer();

    void fetch_shard(Bytes gathered);
    void gather(const char* name, const char* flat_name, Bytes bytes, TensorId flat);
    void reduce_block();
    void offload_input();
    void restore_input();

    const Workload& work_;
    Traits traits_;
    StateBytes states_;
    Builder to_;
    std::vector<TensorId> weight_gradients_;  ///< of the root's norm, after those of a block
    std::size_t block_gradients_ = 0;
    RoutineId forward_ = 0, backward_ = 0;
    Step step_;
    std::array<BlockRole, 3> roles_{};
    BlockKept kept_;  ///< by the forward of every block: each has one more tensor under these ids
    std::size_t role_count_ = 0;
    LossKept loss_kept_;
    TensorId final_norm_gradient_ = no_tensor;

    // Ids that several segments share.
    TensorId hidden_ = 0;    // block inputs and outputs
    TensorId gradient_ = 0;  // gradient of the block output
    TensorId flat_ = 0;      // all-gather output of a block
    TensorId root_flat_ = 0;
    TensorId weights_ = 0;  // gathered weights of a block
    TensorId root_weights_ = 0;
    TensorId reduce_input_ = 0;     // fp32 input of the last reduce-scatter
    TensorId gradient_shards_ = 0;  // of blocks
    TensorId root_shard_ = 0;
    TensorId host_input_ = 0;
    TensorId host_table_ = 0;
    TensorId restored_ = 0;
    TensorId restored_table_ = 0;
    bool reduce_pending_ = false;
};

/// What all blocks have in common, once.
void TrainingStep::write_routines() {
    hidden_ = to_.reserve();
    gradient_ = to_.reserve();
    flat_ = to_.reserve();
    root_flat_ = to_.reserve();
    weights_ = to_.reserve();
    root_weights_ = to_.reserve();
    reduce_input_ = to_.reserve();
    gradient_shards_ = to_.reserve();
    host_input_ = to_.reserve();
    host_table_ = to_.reserve();
    restored_ = to_.reserve();
    restored_table_ = to_.reserve();

    forward_ = to_.routine(Phase::forward, [&] { block_forward(step_, kept_, !checkpoints()); });
    backward_ = to_.routine(backward_phase(), [&] {
        BlockKept kept = kept_;
        TensorId output = no_tensor;
        if (checkpoints()) {
            if (traits_.megatron) output = to_.reserve();
            block_forward(step_, kept, true, output, Group::residual);
            to_.phase(Phase::backward);
        }
        block_backward(step_, kept, gradient_);
        step_.release(output);
    });
    block_gradients_ = weight_gradients_.size();
}

void TrainingStep::setup() {
    to_.segment("states", Phase::setup);
    const auto state = [&](const char* name, Bytes bytes, bool on_host) {
        if (bytes.value > 0) to_.allocate(name, Group::states, bytes, on_host ? Place::host_pinned : Place::device);
    };
    state("parameters", states_.parameters, recipe().offload.parameters);
    state("optimizer state", states_.optimizer, recipe().offload.optimizer);
    state("gradients", states_.gradients, recipe().offload.optimizer);
    state("reduce bucket", states_.reduce_bucket, false);
    state("live gathered parameters", states_.live_parameters, false);
    to_.allocate("cuBLAS workspaces", Group::workspace, {cublas_workspaces});

    // Every rank holds tables and token ids of the whole context in the shipped codes, which shrink views, not storage.
    const std::int64_t local = work_.tokens / recipe().batch;
    const bool whole = traits_.full_rotary_table || traits_.megatron;
    const std::int64_t rows = whole ? work_.global_tokens() : local;
    const std::int64_t token_rows = whole ? recipe().batch * work_.global_tokens() : work_.tokens;
    if (traits_.megatron) {
        // cos and sin in 16 bits, a quarter of head_dim (language_model.py:548-551).
        to_.allocate("rotary table", Group::tables, {2 * rows * (work_.model.head_dim / 4) * 2});
    } else {
        to_.allocate("rotary table", Group::tables, {4 * rows * work_.model.head_dim});
    }
    to_.allocate("tokens and labels", Group::tables, {16 * token_rows});
    if (traits_.megatron) {
        const std::int64_t chunks = work_.global_tokens() / recipe().chunk_tokens.value;
        const TensorId mask = to_.allocate("chunk selection mask", Group::tables,
                                           {work_.global_tokens() * chunks * recipe().context_parallel()});
        to_.release(mask);
    }
}

/// A shard that waits on the host crosses PCIe before every gather, in the format it is stored in: FSDP2 casts on the
/// device (fsdp_param.py, all_gather_inputs), ZeRO-3 keeps a copy in the compute format.
void TrainingStep::fetch_shard(Bytes gathered) {
    if (!recipe().offload.parameters) return;
    const std::int64_t width = fsdp() ? bytes_per_element(recipe().precision.parameters) : work_.element;
    const std::int64_t elements = divide_round_up(gathered.value / work_.element, recipe().sharding.degree);
    to_.copy("fetch parameter shard", Stream::all_gather,
             {.to_host = false, .pinned = true, .fresh = false, .bytes = width * elements});
}

/// FSDP2: a flat all-gather output on its own stream, copied out into the weights. The caller frees `flat`.
void TrainingStep::gather(const char* name, const char* flat_name, Bytes bytes, TensorId flat) {
    to_.use(Stream::all_gather);
    to_.allocate_again(flat, flat_name, Group::parameters, bytes);
    to_.use(Stream::compute);
    fetch_shard(bytes);
    to_.collective(name, Stream::all_gather, CollectiveKind::all_gather, CommGroup::sharding, bytes, false);
}

void TrainingStep::begin_forward() {
    to_.segment("begin forward", Phase::forward);
    if (work_.loads_data) {
        to_.host_work("tokenise the batch", HostWork::Kind::tokenise, recipe().batch * work_.global_tokens());
    }
    if (fsdp()) {
        gather("gather root", "all-gather output of root", root_weights(), root_flat_);
        to_.wait(Stream::compute, to_.record(Stream::all_gather));
        to_.allocate_again(root_weights_, "embedding, final norm and head", Group::parameters, root_weights());
        step_.copy("copy out root", 2 * root_weights());
        to_.release(root_flat_);
    }
    if (traits_.megatron) {
        const std::int64_t dims = work_.model.head_dim / 4;
        to_.release(to_.allocate("rotary table, fp32", Group::tables, {2 * work_.global_tokens() * dims * 4}));
    }
    const Group group = input_group(roles_[0]);
    to_.allocate_again(hidden_, group == Group::saved ? "block input" : "block output", group, work_.hidden);
    step_.copy("embedding", 2 * work_.hidden);
}

void TrainingStep::offload_input() {
    const bool pinned = host_place() == Place::host_pinned;
    to_.allocate_again(host_input_, "block inputs", Group::saved, work_.hidden, host_place());
    const Bytes table = offloaded_table();
    if (table.value > 0) to_.allocate_again(host_table_, "rotary tables of blocks", Group::saved, table, host_place());
    to_.copy("offload block input", Stream::compute,
             {.to_host = true, .pinned = pinned, .fresh = !pinned, .bytes = (work_.hidden + table).value});
    to_.host_wait("offload block input", Stream::compute);
}

void TrainingStep::restore_input() {
    const bool pinned = host_place() == Place::host_pinned;
    to_.allocate_again(restored_, "restored block input", Group::saved, work_.hidden);
    const Bytes table = offloaded_table();
    if (table.value > 0) to_.allocate_again(restored_table_, "restored rotary table", Group::tables, table);
    to_.copy("restore block input", Stream::compute,
             {.to_host = false, .pinned = pinned, .fresh = false, .bytes = (work_.hidden + table).value});
    if (!pinned) to_.host_wait("restore block input", Stream::compute);
    if (table.value > 0) to_.release(host_table_);
    to_.release(host_input_);
}

void TrainingStep::forward_block(const BlockRole& role) {
    to_.segment(role.name, Phase::forward, role.repeat);
    if (states_.gathers_blocks && fsdp()) {
        gather("gather block", "all-gather output of a block", block_weights(), flat_);
        to_.wait(Stream::compute, to_.record(Stream::all_gather));
        to_.allocate_again(weights_, "weights of the running block", Group::parameters, block_weights());
        step_.copy("copy out block", 2 * block_weights());
        to_.wait(Stream::all_gather, to_.record(Stream::compute));
    } else if (states_.gathers_blocks) {
        fetch_shard(block_weights());
        to_.collective("gather block", Stream::all_gather, CollectiveKind::all_gather, CommGroup::sharding,
                       block_weights(), false);
        to_.wait(Stream::compute, to_.record(Stream::all_gather));
    }
    const bool offloads = checkpoints() && offloads_input(role);
    if (offloads) offload_input();
    if (offloads && traits_.megatron) {
        // cos and sin of the whole context follow every block input and are thrown away (128 bytes a token).
        to_.copy(
            "offload rotary tables", Stream::compute,
            {.to_host = true, .pinned = false, .fresh = true, .bytes = work_.model.head_dim * work_.global_tokens()});
        to_.host_wait("offload rotary tables", Stream::compute);
    }
    // The output is the next block's input; the last one waits for the final norm's backward.
    const Group next = role.last || !checkpoints() || input_group({false, false, 1, ""}) == Group::saved
                           ? Group::saved
                           : Group::residual;
    to_.call(forward_);
    block_output(step_, kept_, !checkpoints(), hidden_, next);
    if (offloads) to_.release(hidden_);
    if (states_.gathers_blocks && fsdp() && !role.last) to_.release(weights_, flat_);
}

void TrainingStep::loss() {
    to_.segment("loss", Phase::loss);
    loss_kept_ = loss_forward(step_);
}

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

}  // namespace

void build_training_step(const Workload& work, Schedule& schedule) { TrainingStep(work, schedule).build(); }

}  // namespace headroom
