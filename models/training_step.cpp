// SPDX-License-Identifier: Apache-2.0
#include "models/training_step.hpp"

#include "models/attention_step.hpp"
#include "models/error.hpp"
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

    if (described()) return;  // every block is written where it runs
    forward_ = to_.routine(Phase::forward, [&] { block_forward(step_, held_[0].kept, !checkpoints()); });
    backward_ = to_.routine(backward_phase(), [&] { forward_backward_of_block(held_[0].kept); });
    block_gradients_ = weight_gradients_.size();
}

/// Backward of a block, after another forward where that was not kept.
void TrainingStep::forward_backward_of_block(BlockKept kept) {
    TensorId output = no_tensor;
    if (checkpoints()) {
        if (traits_.reentrant_checkpoints) output = to_.reserve();
        block_forward(step_, kept, true, output, Group::residual);
        to_.phase(Phase::backward);
    }
    block_backward(step_, kept, gradient_);
    step_.release(output);
}

/// What the running block reads.
void TrainingStep::give_operands(View block_input) {
    const BlockWeights at = block_weights_of(work_);
    Operands& operands = step_.operands;
    operands.block_input = block_input;
    operands.input_norm = weight(weights_, at.input_norm);
    operands.residual_norm = weight(weights_, at.residual_norm);
    operands.gate_weight = weight(weights_, at.gate);
    operands.up_weight = weight(weights_, at.up);
    operands.down_weight = weight(weights_, at.down);
    operands.query_weight = weight(weights_, at.query);
    operands.key_weight = weight(weights_, at.key);
    operands.value_weight = weight(weights_, at.value);
    operands.output_weight = weight(weights_, at.output);
    operands.query_norm = weight(weights_, at.query_norm);
    operands.key_norm = weight(weights_, at.key_norm);
    operands.rotary_table = outside_->rotary_table;
}

LossOperands TrainingStep::loss_operands() const {
    if (!described()) return {};
    const RootWeights at = root_weights_of(work_);
    const double rows = static_cast<double>(work_.tokens) * work_.gpus;  // of all ranks
    return {hidden_, weight(root_weights_, at.final_norm), weight(root_weights_, at.head),
            View(outside_->tokens) + 8 * work_.tokens, static_cast<float>(1 / rows)};
}

void TrainingStep::setup() {
    to_.segment("states", Phase::setup);
    StepTensors tensors{};
    const auto state = [&](const char* name, Bytes bytes, bool on_host) {
        if (bytes.value == 0) return no_tensor;
        return to_.allocate(name, Group::states, bytes, on_host ? Place::host_pinned : Place::device);
    };
    tensors.parameters = state("parameters", states_.parameters, recipe().offload.parameters);
    tensors.moments = state("optimizer state", states_.optimizer, recipe().offload.optimizer);
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
        tensors.rotary_table = to_.allocate("rotary table", Group::tables, {4 * rows * work_.model.head_dim});
    }
    tensors.tokens = to_.allocate("tokens and labels", Group::tables, {16 * token_rows});
    if (described()) {
        tensors.gradients.resize(static_cast<std::size_t>(work_.model.layers) + 1);
        *outside_ = tensors;
    }
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

/// FSDP2: a flat all-gather output on its own stream, copied out into the weights. The caller frees `flat`. The root
/// stands behind the last block.
void TrainingStep::gather(const char* name, const char* flat_name, std::int64_t block, TensorId flat) {
    const bool root = block == work_.model.layers;
    const Bytes bytes = root ? root_weights() : block_weights();
    to_.use(Stream::all_gather);
    to_.allocate_again(flat, flat_name, Group::parameters, bytes);
    to_.use(Stream::compute);
    fetch_shard(bytes);
    to_.collective(name, Stream::all_gather, CollectiveKind::all_gather, CommGroup::sharding, bytes, false);
    if (described()) {
        to_.computes(GatherShards{part(outside_->parameters, block), flat, root ? root_part() : block_part()});
    }
}

void TrainingStep::begin_forward() {
    to_.segment("begin forward", Phase::forward);
    if (work_.loads_data) {
        to_.host_work("tokenise the batch", HostWork::Kind::tokenise, recipe().batch * work_.global_tokens());
    }
    if (fsdp()) {
        gather("gather root", "all-gather output of root", work_.model.layers, root_flat_);
        to_.wait(Stream::compute, to_.record(Stream::all_gather));
        to_.allocate_again(root_weights_, "embedding, final norm and head", Group::parameters, root_weights());
        step_.copy("copy out root", 2 * root_weights());
        to_.computes(Transfer{{Move{root_flat_, root_weights_, root_weights().value}}});
        to_.wait(Stream::all_gather, to_.record(Stream::compute));
        to_.release(root_flat_);
    }
    if (traits_.megatron) {
        const std::int64_t dims = work_.model.head_dim / 4;
        to_.release(to_.allocate("rotary table, fp32", Group::tables, {2 * work_.global_tokens() * dims * 4}));
    }
    const Group group = input_group(roles_.front());
    hidden_ = to_.renew(hidden_, group == Group::saved ? "block input" : "block output", group, work_.hidden);
    step_.copy("embedding", 2 * work_.hidden);
    if (described()) {
        to_.computes(Embedding{weight(root_weights_, root_weights_of(work_).embedding), outside_->tokens, hidden_,
                               work_.tokens, work_.model.hidden, work_.model.vocabulary});
    }
}

void TrainingStep::offload_input(BlockHeld& held) {
    const bool pinned = host_place() == Place::host_pinned;
    held.host_input = described() ? to_.reserve() : host_input_;
    to_.allocate_again(held.host_input, "block inputs", Group::saved, work_.hidden, host_place());
    const Bytes table = offloaded_table();
    if (table.value > 0) to_.allocate_again(host_table_, "rotary tables of blocks", Group::saved, table, host_place());
    to_.copy("offload block input", Stream::compute,
             {.to_host = true, .pinned = pinned, .fresh = !pinned, .bytes = (work_.hidden + table).value});
    to_.computes(Transfer{{Move{hidden_, held.host_input, work_.hidden.value}}});
    to_.host_wait("offload block input", Stream::compute);
}

void TrainingStep::restore_input(const BlockHeld& held) {
    const bool pinned = host_place() == Place::host_pinned;
    to_.allocate_again(restored_, "restored block input", Group::saved, work_.hidden);
    const Bytes table = offloaded_table();
    if (table.value > 0) to_.allocate_again(restored_table_, "restored rotary table", Group::tables, table);
    to_.copy("restore block input", Stream::compute,
             {.to_host = false, .pinned = pinned, .fresh = false, .bytes = (work_.hidden + table).value});
    to_.computes(Transfer{{Move{held.host_input, restored_, work_.hidden.value}}});
    if (!pinned) to_.host_wait("restore block input", Stream::compute);
    if (table.value > 0) to_.release(host_table_);
    to_.release(held.host_input);
}

void TrainingStep::forward_block(const BlockRole& role) {
    to_.segment(role.name, Phase::forward, role.repeat);
    BlockHeld& held = this->held(role);
    held.input = hidden_;
    if (states_.gathers_blocks && fsdp()) {
        gather("gather block", "all-gather output of a block", role.index, flat_);
        to_.wait(Stream::compute, to_.record(Stream::all_gather));
        to_.allocate_again(weights_, "weights of the running block", Group::parameters, block_weights());
        step_.copy("copy out block", 2 * block_weights());
        to_.computes(Transfer{{Move{flat_, weights_, block_weights().value}}});
        to_.wait(Stream::all_gather, to_.record(Stream::compute));
    } else if (states_.gathers_blocks) {
        fetch_shard(block_weights());
        to_.collective("gather block", Stream::all_gather, CollectiveKind::all_gather, CommGroup::sharding,
                       block_weights(), false);
        to_.wait(Stream::compute, to_.record(Stream::all_gather));
    }
    const bool offloads = checkpoints() && offloads_input(role);
    if (offloads) offload_input(held);
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
    if (described()) {
        give_operands(held.input);
        block_forward(step_, held.kept, !checkpoints());
        hidden_ = to_.reserve();
    } else {
        to_.call(forward_);
    }
    block_output(step_, held.kept, !checkpoints(), hidden_, next);
    if (offloads) to_.release(held.input);
    if (states_.gathers_blocks && fsdp() && !role.last) to_.release(weights_, flat_);
}

void TrainingStep::loss() {
    to_.segment("loss", Phase::loss);
    loss_kept_ = loss_forward(step_, loss_operands());
}

void build_training_step(const Workload& work, Schedule& schedule) { TrainingStep(work, schedule).build(); }

StepTensors build_described_step(const Workload& work, Schedule& schedule) {
    if (const std::string reason = not_described(work); !reason.empty()) {
        throw Error(reason + " cannot be run", "a step to run", "see headroom calibrate run --help for what can");
    }
    StepTensors outside{};
    TrainingStep(work, schedule, &outside).build();
    return outside;
}

std::string not_described(const Workload& work) {
    if (std::string reason = attention_not_described(work); !reason.empty()) return reason;
    const Recipe& recipe = work.recipe;
    const TransformerShape& model = work.model;
    const auto& precision = recipe.precision;
    if (recipe.sharding.strategy != ShardingStrategy::fsdp || recipe.sharding.degree != work.gpus) {
        return "sharding other than FSDP over all GPUs";
    }
    if (precision.parameters != NumberFormat::fp32 || precision.reduction != NumberFormat::fp32 ||
        precision.optimizer != NumberFormat::fp32) {
        return "parameters, reduction or optimizer in another format than fp32";
    }
    if (recipe.offload.parameters || recipe.offload.optimizer) return "offload of parameters or optimizer";
    if (recipe.tiling.mlp.kind == Tiling::Kind::off) return "an untiled MLP";
    if (recipe.tiling.loss.kind == Tiling::Kind::off) return "an untiled loss";
    if (model.norm != NormKind::rms || !work.gated()) return "a model without RMSNorm and gated MLP";
    if (block_weights_of(work).size != work.parameters.block() ||
        root_weights_of(work).size != work.parameters.root()) {
        return "a model with other weights than a Llama's";
    }
    if (work.parameters.block() % work.gpus != 0 || work.parameters.root() % work.gpus != 0) {
        return "weights that do not divide evenly among the GPUs";
    }
    return "";
}

}  // namespace headroom
