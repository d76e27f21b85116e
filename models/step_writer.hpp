// SPDX-License-Identifier: Apache-2.0
// The writer of a training step: what its forward half (training_step.cpp) and its backward half
// (training_step_backward.cpp) share.
#pragma once

#include <algorithm>
#include <vector>

#include "models/loss.hpp"
#include "models/states.hpp"
#include "models/training_step.hpp"
#include "models/weights.hpp"

namespace headroom {

/// Which of the blocks a segment stands for. The middle ones are alike and repeat.
struct BlockRole {
    bool first, last;
    std::int64_t repeat;
    const char* name;
    std::int64_t index = 0;  ///< of the block in a described step
};

/// What a block leaves, in a described step, where each has tensors of its own.
struct BlockHeld {
    TensorId input = no_tensor;
    TensorId host_input = no_tensor;
    BlockKept kept;
};

class TrainingStep {
 public:
    /// With `outside` the step is described, and tells there what its surroundings fill.
    TrainingStep(const Workload& work, Schedule& schedule, StepTensors* outside = nullptr)
        : work_(work),
          traits_(traits_of(work.recipe)),
          states_(state_bytes(work)),
          to_(schedule),
          step_{to_, work_, traits_, weight_gradients_},
          outside_(outside) {
        weight_gradients_.reserve(16);
        const std::int64_t layers = work.model.layers;
        if (outside != nullptr) to_.describe();
        held_.resize(outside != nullptr ? static_cast<std::size_t>(layers) : 1);
        if (layers == 1) {
            roles_ = {{true, true, 1, "the only block"}};
            return;
        }
        roles_ = {{true, false, 1, "first block"}};
        if (outside == nullptr) {
            roles_.push_back({false, false, layers - 2, "middle blocks"});
        } else {
            for (std::int64_t i = 1; i + 1 < layers; ++i) roles_.push_back({false, false, 1, "middle blocks", i});
        }
        roles_.push_back({false, true, 1, "last block", layers - 1});
    }

    void build() {
        write_routines();
        setup();
        begin_forward();
        for (const BlockRole& role : roles_) forward_block(role);
        loss();
        begin_backward();
        for (std::size_t i = roles_.size(); i-- > 0;) backward_block(roles_[i]);
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

    bool described() const { return outside_ != nullptr; }
    BlockHeld& held(const BlockRole& role) { return held_[described() ? static_cast<std::size_t>(role.index) : 0]; }
    /// Elements of the rank's part of a block's and the root's weights, and where that of a block begins; the root's
    /// stands behind the last block's.
    std::int64_t block_part() const { return work_.parameters.block() / recipe().sharding.degree; }
    std::int64_t root_part() const { return work_.parameters.root() / recipe().sharding.degree; }
    View part(TensorId states, std::int64_t block) const { return View(states) + 4 * block * block_part(); }
    View weight(TensorId whole, std::int64_t place) const { return View(whole) + work_.element * place; }
    void give_operands(View block_input);
    LossOperands loss_operands() const;
    void forward_backward_of_block(BlockKept kept);
    struct GradientPlace {
        TensorId gradient;
        std::int64_t place, elements;
    };
    void copy_in(std::initializer_list<GradientPlace> gradients, TensorId to);
    void release_reduce_input();
    Adam adam(std::int64_t block) const;

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
    void gather(const char* name, const char* flat_name, std::int64_t block, TensorId flat);
    void reduce_block(const BlockRole& role);
    void offload_input(BlockHeld& held);
    void restore_input(const BlockHeld& held);

    const Workload& work_;
    Traits traits_;
    StateBytes states_;
    Builder to_;
    std::vector<TensorId> weight_gradients_;  ///< of the root's norm, after those of a block
    std::size_t block_gradients_ = 0;
    RoutineId forward_ = 0, backward_ = 0;
    Step step_;
    StepTensors* outside_;
    std::vector<BlockRole> roles_;
    /// One for all blocks, each of which has one more tensor under these ids; in a described step one for each.
    std::vector<BlockHeld> held_;
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

}  // namespace headroom
