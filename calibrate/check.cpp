// SPDX-License-Identifier: Apache-2.0
#include "calibrate/check.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <mutex>

#include "calibrate/check_parts.hpp"
#include "calibrate/host_device.hpp"
#include "models/attention_step.hpp"
#include "models/error.hpp"

namespace headroom {
namespace {

/// What all ranks together computed, in the model's order.
struct Results {
    std::vector<double> output, input_gradient, query_weight, key_weight, value_weight, output_weight, query_norm,
        key_norm;
    std::int64_t peak_bytes = 0;
    std::mutex mutex;

    explicit Results(const CheckReference& reference)
        : output(reference.output.size(), NAN),
          input_gradient(reference.input_gradient.size(), NAN),
          query_weight(reference.query_weight.size()),
          key_weight(reference.key_weight.size()),
          value_weight(reference.value_weight.size()),
          output_weight(reference.output_weight.size()),
          query_norm(reference.query_norm.size()),
          key_norm(reference.key_norm.size()) {}
};

/// The model's weights as the schedule has them, and the inverse.
std::vector<float> ordered(const std::vector<float>& whole, const std::vector<std::size_t>& order) {
    std::vector<float> result(whole.size());
    for (std::size_t i = 0; i < order.size(); ++i) result[i] = whole[order[i]];
    return result;
}
void add_ordered(std::vector<double>& whole, const std::vector<float>& part, const std::vector<std::size_t>& order) {
    for (std::size_t i = 0; i < order.size(); ++i) whole[order[i]] += static_cast<double>(part[i]);
}

/// The gradients of two weights lie behind each other.
void add_both(std::vector<double>& one, std::vector<double>& other, const std::vector<float>& both) {
    for (std::size_t i = 0; i < both.size(); ++i) {
        (i < one.size() ? one[i] : other[i - one.size()]) += static_cast<double>(both[i]);
    }
}

std::vector<float> fetch(const Interpreter& interpreter, ComputeDevice& device, TensorId tensor, std::int64_t element) {
    std::vector<float> values(static_cast<std::size_t>(interpreter.bytes(tensor) / element));
    device.download(values, interpreter.address(tensor));
    return values;
}

void run_rank(const Workload& work, int ulysses_rank, const CheckReference& reference, ComputeDevice& device,
              Results& results) {
    Schedule schedule;
    const AttentionStep step = build_attention_step(work, schedule);
    const RankRows rows(work, ulysses_rank);
    const std::vector<std::size_t> query_order = head_order(work, true);
    const std::vector<std::size_t> output_order = head_order(work, false);
    Interpreter interpreter(schedule, work.element, work.recipe.context_parallel(), device);
    for (const Segment& segment : schedule.segments) {
        interpreter.run(segment);
        if (segment.phase == Phase::setup) {
            const auto give = [&](TensorId tensor, const std::vector<float>& values) {
                device.upload(interpreter.address(tensor), values);
            };
            give(step.input, rows.of(reference.input, work.model.hidden));
            give(step.query_weight, ordered(reference.query_weight, query_order));
            give(step.key_weight, reference.key_weight);
            give(step.value_weight, reference.value_weight);
            give(step.output_weight, ordered(reference.output_weight, output_order));
            if (!reference.query_norm.empty()) {
                give(step.query_norm, reference.query_norm);
                give(step.key_norm, reference.key_norm);
            }
            give(step.result_gradient, rows.of(reference.result_gradient, work.model.hidden));
            const std::vector<float> table = rotary_table(rows.positions(), static_cast<int>(work.model.head_dim));
            device.upload_bytes(interpreter.address(step.rotary_table), std::as_bytes(std::span(table)));
        }
        if (segment.phase != Phase::backward) continue;
        const auto take = [&](TensorId tensor) { return fetch(interpreter, device, tensor, work.element); };
        const std::vector<float> output = take(step.result);
        const std::vector<float> input_gradient = take(step.input_gradient);
        const std::vector<float> query_weight = take(step.query_weight_gradient);
        const std::vector<float> key_value_weight = take(step.key_value_weight_gradient);
        const std::vector<float> output_weight = take(step.output_weight_gradient);
        std::vector<float> qk_norm;
        if (!reference.query_norm.empty()) qk_norm = take(step.qk_norm_gradient);
        const std::lock_guard lock(results.mutex);
        rows.put(results.output, output, work.model.hidden);
        rows.put(results.input_gradient, input_gradient, work.model.hidden);
        add_ordered(results.query_weight, query_weight, query_order);
        add_ordered(results.output_weight, output_weight, output_order);
        add_both(results.key_weight, results.value_weight, key_value_weight);
        add_both(results.query_norm, results.key_norm, qk_norm);
        results.peak_bytes = std::max(results.peak_bytes, interpreter.peak_bytes());
    }
    if (interpreter.live_bytes() != 0) {
        throw Error(fmt::format("{} bytes are left on the device", interpreter.live_bytes()), "calibrate check",
                    "the schedule is wrong; please report it");
    }
}

}  // namespace

double CheckErrors::largest() const {
    return largest_error(std::array{output, input_gradient, query_weight, key_weight, value_weight, output_weight,
                                    query_norm, key_norm});
}

CheckErrors check(const CheckCase& which, const CheckReference& reference, const DeviceFactory& make_device,
                  const std::function<void()>& give_up) {
    Results results(reference);
    on_every_rank(
        which.work,
        [&](int rank, const Workload& work) {
            const auto device = make_device(rank);
            run_rank(work, rank % work.recipe.ulysses, reference, *device, results);
        },
        give_up);
    CheckErrors errors;
    errors.output = relative_error(results.output, reference.output);
    errors.input_gradient = relative_error(results.input_gradient, reference.input_gradient);
    errors.query_weight = relative_error(results.query_weight, reference.query_weight_gradient);
    errors.key_weight = relative_error(results.key_weight, reference.key_weight_gradient);
    errors.value_weight = relative_error(results.value_weight, reference.value_weight_gradient);
    errors.output_weight = relative_error(results.output_weight, reference.output_weight_gradient);
    if (!reference.query_norm.empty()) {
        errors.query_norm = relative_error(results.query_norm, reference.query_norm_gradient);
        errors.key_norm = relative_error(results.key_norm, reference.key_norm_gradient);
    }
    errors.peak_bytes = results.peak_bytes;
    return errors;
}

}  // namespace headroom
