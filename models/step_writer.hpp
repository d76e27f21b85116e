// SPDX-License-Identifier: Apache-2.0
// The writer of a training step: what its forward half (training_step.cpp) and its backward half
// (training_step_backward.cpp) share.
#pragma once

#include <algorithm>
#include <array>

#include "models/loss.hpp"
#include "models/states.hpp"
#include "models/training_step.hpp"

namespace headroom {

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
          traits_(traits_of(work.recipe)),
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

}  // namespace headroom
