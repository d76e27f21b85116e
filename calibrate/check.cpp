// SPDX-License-Identifier: Apache-2.0
#include "calibrate/check.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <exception>
#include <mutex>
#include <thread>

#include "calibrate/host_device.hpp"
#include "models/attention_step.hpp"
#include "models/error.hpp"

namespace headroom {
namespace {

/// How a rank's rows and the places of heads in its weights stand to the whole.
struct Placement {
    const Workload& work;
    std::vector<std::int64_t> positions;  ///< of the rank's rows

    Placement(const Workload& rank_work, int ulysses_rank) : work(rank_work) {
        for (std::int64_t row = 0; row < work.tokens; ++row) {
            positions.push_back(position_of(work, ulysses_rank, std::max(work.ring_rank, 0), row));
        }
    }

    /// Rows of a whole tensor [S][D] that the rank holds.
    std::vector<float> rows_of(const std::vector<float>& whole) const {
        const std::int64_t width = work.model.hidden;
        std::vector<float> rows;
        for (const std::int64_t position : positions) {
            rows.insert(rows.end(), whole.begin() + position * width, whole.begin() + (position + 1) * width);
        }
        return rows;
    }
    void put_rows(std::vector<double>& whole, const std::vector<float>& rows) const {
        const std::int64_t width = work.model.hidden;
        for (std::size_t row = 0; row < positions.size(); ++row) {
            std::copy_n(rows.begin() + static_cast<std::ptrdiff_t>(row) * width, width,
                        whole.begin() + positions[row] * width);
        }
    }
    /// Visits every element of Wq (`by_rows`) or Wo with its index in the model's order and in the rank's.
    template <class Visit>
    void for_each_head_element(bool by_rows, Visit visit) const {
        const std::int64_t d = work.model.head_dim;
        const std::int64_t hidden = work.model.hidden;
        const std::int64_t wide = work.model.query_width();
        for (std::int64_t place = 0; place < work.model.heads; ++place) {
            const std::int64_t head = model_head(work, place);
            for (std::int64_t i = 0; i < d; ++i) {
                for (std::int64_t j = 0; j < hidden; ++j) {
                    const std::int64_t model_index = by_rows ? (head * d + i) * hidden + j : j * wide + head * d + i;
                    const std::int64_t rank_index = by_rows ? (place * d + i) * hidden + j : j * wide + place * d + i;
                    visit(static_cast<std::size_t>(model_index), static_cast<std::size_t>(rank_index));
                }
            }
        }
    }
    std::vector<float> heads_of(const std::vector<float>& whole, bool by_rows) const {
        std::vector<float> result(whole.size());
        for_each_head_element(by_rows, [&](std::size_t model, std::size_t rank) { result[rank] = whole[model]; });
        return result;
    }
    void add_heads(std::vector<double>& whole, const std::vector<float>& part, bool by_rows) const {
        for_each_head_element(
            by_rows, [&](std::size_t model, std::size_t rank) { whole[model] += static_cast<double>(part[rank]); });
    }
};

/// What all ranks together computed, in the model's order.
struct Results {
    std::vector<double> output, input_gradient, query_weight, key_weight, value_weight, output_weight;
    std::int64_t peak_bytes = 0;
    std::mutex mutex;

    explicit Results(const CheckReference& reference)
        : output(reference.output.size(), NAN),
          input_gradient(reference.input_gradient.size(), NAN),
          query_weight(reference.query_weight.size()),
          key_weight(reference.key_weight.size()),
          value_weight(reference.value_weight.size()),
          output_weight(reference.output_weight.size()) {}
};

std::vector<float> fetch(const Interpreter& interpreter, ComputeDevice& device, TensorId tensor, std::int64_t element) {
    std::vector<float> values(static_cast<std::size_t>(interpreter.bytes(tensor) / element));
    device.download(values, interpreter.address(tensor));
    return values;
}

void run_rank(const Workload& work, int ulysses_rank, const CheckReference& reference, ComputeDevice& device,
              Results& results) {
    Schedule schedule;
    const AttentionStep step = build_attention_step(work, schedule);
    const Placement placement(work, ulysses_rank);
    Interpreter interpreter(schedule, work.element, work.recipe.context_parallel(), device);
    for (const Segment& segment : schedule.segments) {
        interpreter.run(segment);
        if (segment.phase == Phase::setup) {
            const auto give = [&](TensorId tensor, const std::vector<float>& values) {
                device.upload(interpreter.address(tensor), values);
            };
            give(step.input, placement.rows_of(reference.input));
            give(step.query_weight, placement.heads_of(reference.query_weight, true));
            give(step.key_weight, reference.key_weight);
            give(step.value_weight, reference.value_weight);
            give(step.output_weight, placement.heads_of(reference.output_weight, false));
            give(step.result_gradient, placement.rows_of(reference.result_gradient));
            const std::vector<float> table = rotary_table(placement.positions, static_cast<int>(work.model.head_dim));
            device.upload_bytes(interpreter.address(step.rotary_table), std::as_bytes(std::span(table)));
        }
        if (segment.phase != Phase::backward) continue;
        const auto take = [&](TensorId tensor) { return fetch(interpreter, device, tensor, work.element); };
        const std::vector<float> output = take(step.result);
        const std::vector<float> input_gradient = take(step.input_gradient);
        const std::vector<float> query_weight = take(step.query_weight_gradient);
        const std::vector<float> key_value_weight = take(step.key_value_weight_gradient);
        const std::vector<float> output_weight = take(step.output_weight_gradient);
        const std::lock_guard lock(results.mutex);
        placement.put_rows(results.output, output);
        placement.put_rows(results.input_gradient, input_gradient);
        placement.add_heads(results.query_weight, query_weight, true);
        placement.add_heads(results.output_weight, output_weight, false);
        for (std::size_t i = 0; i < results.key_weight.size(); ++i) {
            results.key_weight[i] += static_cast<double>(key_value_weight[i]);
            results.value_weight[i] += static_cast<double>(key_value_weight[results.key_weight.size() + i]);
        }
        results.peak_bytes = std::max(results.peak_bytes, interpreter.peak_bytes());
    }
    if (interpreter.live_bytes() != 0) {
        throw Error(fmt::format("{} bytes are left on the device", interpreter.live_bytes()), "calibrate check",
                    "the schedule is wrong; please report it");
    }
}

double relative_error(const std::vector<double>& got, const std::vector<double>& wanted) {
    double difference = 0;
    double size = 0;
    for (std::size_t i = 0; i < wanted.size(); ++i) {
        difference += (got[i] - wanted[i]) * (got[i] - wanted[i]);
        size += wanted[i] * wanted[i];
    }
    return std::sqrt(difference / size);  // not a number where one is
}

}  // namespace

double CheckErrors::largest() const {
    double result = 0;
    for (const double error : {output, input_gradient, query_weight, key_weight, value_weight, output_weight}) {
        if (!(error <= result)) result = error;  // keeps what is not a number
    }
    return result;
}

CheckErrors check(const CheckCase& which, const CheckReference& reference, const DeviceFactory& make_device,
                  const std::function<void()>& give_up) {
    const Recipe& recipe = which.work.recipe;
    Results results(reference);
    std::exception_ptr failure;
    {
        std::vector<std::jthread> threads;
        for (int rank = 0; rank < recipe.context_parallel(); ++rank) {
            threads.emplace_back([&, rank] {
                try {
                    Workload work = which.work;
                    if (recipe.ring > 1) work.ring_rank = rank / recipe.ulysses;
                    const int ulysses_rank = rank % recipe.ulysses;
                    const auto device = make_device(rank);
                    run_rank(work, ulysses_rank, reference, *device, results);
                } catch (...) {
                    const std::lock_guard lock(results.mutex);
                    if (!failure) {
                        failure = std::current_exception();
                        give_up();
                    }
                }
            });
        }
    }
    if (failure) std::rethrow_exception(failure);
    CheckErrors errors;
    errors.output = relative_error(results.output, reference.output);
    errors.input_gradient = relative_error(results.input_gradient, reference.input_gradient);
    errors.query_weight = relative_error(results.query_weight, reference.query_weight_gradient);
    errors.key_weight = relative_error(results.key_weight, reference.key_weight_gradient);
    errors.value_weight = relative_error(results.value_weight, reference.value_weight_gradient);
    errors.output_weight = relative_error(results.output_weight, reference.output_weight_gradient);
    errors.peak_bytes = results.peak_bytes;
    return errors;
}

}  // namespace headroom
