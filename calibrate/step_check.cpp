// SPDX-License-Identifier: Apache-2.0
#include "calibrate/step_check.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <mutex>
#include <numeric>
#include <string_view>

#include "calibrate/check_parts.hpp"
#include "calibrate/host_device.hpp"
#include "models/error.hpp"
#include "models/training_step.hpp"
#include "models/weights.hpp"

namespace headroom {
namespace {

/// Which weights of the model the parts of a rank hold: its share of each block, then of the root.
class WeightShards {
 public:
    WeightShards(const Workload& work, int rank)
        : rank_(static_cast<std::size_t>(rank)),
          ranks_(static_cast<std::size_t>(work.recipe.sharding.degree)),
          block_order_(static_cast<std::size_t>(block_weights_of(work).size)) {
        std::iota(block_order_.begin(), block_order_.end(), std::size_t{0});
        place_heads(head_order(work, true), block_weights_of(work).query);
        place_heads(head_order(work, false), block_weights_of(work).output);
    }

    /// Visits the rank's elements of part `part` of `weights`, the last one being the root, in the order of the shard.
    template <class Weights, class Visit>
    void for_each(Weights& weights, std::size_t part, Visit visit) const {
        const bool root = part == weights.blocks.size();
        auto& flat = root ? weights.root : weights.blocks[part];
        const std::size_t count = flat.size() / ranks_;
        for (std::size_t i = rank_ * count; i < (rank_ + 1) * count; ++i) visit(flat[root ? i : block_order_[i]]);
    }
    /// The same for all parts, one behind the other.
    template <class Weights, class Visit>
    void for_each(Weights& weights, Visit visit) const {
        for (std::size_t part = 0; part <= weights.blocks.size(); ++part) for_each(weights, part, visit);
    }

 private:
    void place_heads(const std::vector<std::size_t>& order, std::int64_t offset) {
        const auto begin = static_cast<std::size_t>(offset);
        for (std::size_t i = 0; i < order.size(); ++i) block_order_[begin + i] = begin + order[i];
    }

    std::size_t rank_, ranks_;
    std::vector<std::size_t> block_order_;  ///< of an element of a block in a schedule, its place in the model's order
};

ModelWeights unwritten(const TransformerShape& model) {
    ModelWeights weights = weights_like(model);
    for (ReferenceValues& block : weights.blocks) std::fill(block.begin(), block.end(), NAN);
    std::fill(weights.root.begin(), weights.root.end(), NAN);
    return weights;
}

/// What all ranks together computed, in the model's order.
struct StepOutcome {
    double losses = 0;  ///< of all tokens
    ModelWeights gradients, parameters, first_moments, second_moments;
    std::int64_t peak_bytes = 0;
    std::mutex mutex;

    explicit StepOutcome(const TransformerShape& model)
        : gradients(unwritten(model)), parameters(gradients), first_moments(gradients), second_moments(gradients) {}
};

/// One rank's step.
class StepRank {
 public:
    StepRank(const Workload& work, int rank, const StepReference& reference, ComputeDevice& device)
        : work_(work),
          reference_(reference),
          device_(device),
          rows_(work, rank % work.recipe.ulysses),
          shards_(work, rank),
          tensors_(build_described_step(work, schedule_)),
          interpreter_(schedule_, work.element, work.recipe.sharding.degree, device) {}

    void run(StepOutcome& outcome) {
        for (const Segment& segment : schedule_.segments) {
            interpreter_.run(segment);
            if (segment.phase == Phase::setup) {
                set_up();
            } else if (segment.name == std::string_view("embedding backward")) {
                take_gradients(outcome);
            }
        }
        take_states(outcome);
    }

 private:
    template <class T>
    void give(TensorId tensor, const std::vector<T>& values) {
        const auto bytes = std::as_bytes(std::span(values));
        if (static_cast<std::int64_t>(bytes.size()) != interpreter_.bytes(tensor)) {
            throw Error(
                fmt::format("a tensor of the set-up has {} bytes, not {}", interpreter_.bytes(tensor), bytes.size()),
                "calibrate check", "the schedule is wrong; please report it");
        }
        device_.upload_bytes(interpreter_.address(tensor), bytes);
    }

    std::vector<float> take(TensorId tensor) {
        std::vector<float> values(static_cast<std::size_t>(interpreter_.bytes(tensor)) / sizeof(float));
        device_.download_bytes(std::as_writable_bytes(std::span(values)), interpreter_.address(tensor));
        return values;
    }

    void set_up() {
        std::vector<float> parameters;
        shards_.for_each(reference_.weights, [&](double weight) { parameters.push_back(static_cast<float>(weight)); });
        give(tensors_.parameters, parameters);
        give(tensors_.moments, std::vector<float>(2 * parameters.size()));
        give(tensors_.rotary_table, rotary_table(rows_.positions(), static_cast<int>(work_.model.head_dim)));
        std::vector<std::int64_t> tokens = rows_.of(reference_.text.tokens, 1);
        const std::vector<std::int64_t> labels = rows_.of(reference_.text.labels, 1);
        tokens.insert(tokens.end(), labels.begin(), labels.end());
        give(tensors_.tokens, tokens);
        held_bytes_ = interpreter_.live_bytes();
    }

    void take_gradients(StepOutcome& outcome) {
        const double losses = device_.take_loss();
        std::vector<std::vector<float>> shards;
        for (const TensorId tensor : tensors_.gradients) shards.push_back(take(tensor));
        const std::lock_guard lock(outcome.mutex);
        outcome.losses += losses;
        for (std::size_t part = 0; part < shards.size(); ++part) {
            auto from = shards[part].begin();
            shards_.for_each(outcome.gradients, part, [&](double& to) { to = static_cast<double>(*from++); });
        }
    }

    void take_states(StepOutcome& outcome) {
        const std::vector<float> parameters = take(tensors_.parameters);
        const std::vector<float> moments = take(tensors_.moments);
        const std::lock_guard lock(outcome.mutex);
        const auto put = [&](ModelWeights& weights, auto from) {
            shards_.for_each(weights, [&](double& to) { to = static_cast<double>(*from++); });
        };
        put(outcome.parameters, parameters.begin());
        put(outcome.first_moments, moments.begin());
        put(outcome.second_moments, moments.begin() + static_cast<std::ptrdiff_t>(parameters.size()));
        outcome.peak_bytes = std::max(outcome.peak_bytes, interpreter_.peak_bytes());
        if (interpreter_.live_bytes() == held_bytes_) return;
        throw Error(fmt::format("{} bytes are left on the device", interpreter_.live_bytes() - held_bytes_),
                    "calibrate check", "the schedule is wrong; please report it");
    }

    const Workload& work_;
    const StepReference& reference_;
    ComputeDevice& device_;
    RankRows rows_;
    WeightShards shards_;
    Schedule schedule_;
    StepTensors tensors_;
    Interpreter interpreter_;
    std::int64_t held_bytes_ = 0;  ///< by the set-up, from step to step
};

/// All weights one behind the other.
ReferenceValues joined(const ModelWeights& weights) {
    ReferenceValues all;
    for (const ReferenceValues& block : weights.blocks) all.insert(all.end(), block.begin(), block.end());
    all.insert(all.end(), weights.root.begin(), weights.root.end());
    return all;
}

ReferenceValues joined(const std::vector<std::span<const double>>& blocks) {
    ReferenceValues all;
    for (const auto& block : blocks) all.insert(all.end(), block.begin(), block.end());
    return all;
}

void compare_states(const StepOutcome& outcome, const StepReference& reference, StepErrors& errors) {
    const ReferenceValues before = joined(reference.weights);
    const ReferenceValues gradients = joined(outcome.gradients);
    ReferenceValues change = joined(outcome.parameters);
    ReferenceValues wanted_change, wanted_first, wanted_second;
    for (std::size_t i = 0; i < before.size(); ++i) {
        const AdamResult wanted = first_adam_step(before[i], gradients[i]);
        // What is kept is fp32, whose rounding of the parameter may not count as an error of the change.
        wanted_change.push_back(static_cast<double>(static_cast<float>(wanted.parameter)) - before[i]);
        wanted_first.push_back(wanted.first_moment);
        wanted_second.push_back(wanted.second_moment);
        change[i] -= before[i];
    }
    errors.update = relative_error(change, wanted_change);
    errors.moments = largest_error(std::array{relative_error(joined(outcome.first_moments), wanted_first),
                                              relative_error(joined(outcome.second_moments), wanted_second)});
}

}  // namespace

double StepErrors::largest_gradient() const {
    std::vector<double> errors;
    for (const NamedError& gradient : gradients) errors.push_back(gradient.error);
    return largest_error(errors);
}

std::vector<NamedError> StepErrors::named() const {
    std::vector<NamedError> all{{"loss", loss}};
    all.insert(all.end(), gradients.begin(), gradients.end());
    all.push_back({"update", update});
    all.push_back({"moments", moments});
    return all;
}

StepErrors check_step(const CheckCase& which, const StepReference& reference, const DeviceFactory& make_device,
                      const std::function<void()>& give_up) {
    StepOutcome outcome(reference.model);
    on_every_rank(
        which.work,
        [&](int rank, const Workload& work) {
            const auto device = make_device(rank);
            StepRank(work, rank, reference, *device).run(outcome);
        },
        give_up);
    StepErrors errors;
    const double loss = outcome.losses / static_cast<double>(reference.text.tokens.size());
    errors.loss = std::abs(loss - reference.loss) / reference.loss;
    for (const WeightKind& kind : weight_kinds(reference.model)) {
        const double error =
            relative_error(joined(kind.in(std::as_const(outcome.gradients))), joined(kind.in(reference.gradients)));
        errors.gradients.push_back({fmt::format("gradient of {}", kind.name), error});
    }
    compare_states(outcome, reference, errors);
    errors.peak_bytes = outcome.peak_bytes;
    return errors;
}

}  // namespace headroom
