// SPDX-License-Identifier: Apache-2.0
#include "models/training_step.hpp"

#include "models/step_writer.hpp"

namespace headroom {
namespace {

/// cuBLAS keeps 32 MiB for each handle and stream on Hopper; forward and autograd threads have a handle each.
constexpr std::int64_t cublas_workspaces = 2 * 32 * mebi;

}  // namespace

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
            if (traits_.reentrant_checkpoints) output = to_.reserve();
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

void build_training_step(const Workload& work, Schedule& schedule) { TrainingStep(work, schedule).build(); }

}  // namespace headroom
