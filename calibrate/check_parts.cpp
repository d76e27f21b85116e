// SPDX-License-Identifier: Apache-2.0
#include "calibrate/check_parts.hpp"

#include <algorithm>
#include <cmath>
#include <exception>
#include <mutex>
#include <thread>

#include "models/attention_step.hpp"

namespace headroom {

RankRows::RankRows(const Workload& work, int ulysses_rank) {
    for (std::int64_t row = 0; row < work.tokens; ++row) {
        positions_.push_back(position_of(work, ulysses_rank, std::max(work.ring_rank, 0), row));
    }
}

void RankRows::put(std::vector<double>& whole, const std::vector<float>& rows, std::int64_t width) const {
    for (std::size_t row = 0; row < positions_.size(); ++row) {
        std::copy_n(rows.begin() + static_cast<std::ptrdiff_t>(row) * width, width,
                    whole.begin() + positions_[row] * width);
    }
}

std::vector<std::size_t> head_order(const Workload& work, bool by_rows) {
    const std::int64_t d = work.model.head_dim;
    const std::int64_t hidden = work.model.hidden;
    const std::int64_t wide = work.model.query_width();
    std::vector<std::size_t> order(static_cast<std::size_t>(wide * hidden));
    for (std::int64_t i = 0; i < wide; ++i) {
        const std::int64_t from = model_head(work, i / d) * d + i % d;  // of all head elements
        for (std::int64_t j = 0; j < hidden; ++j) {
            const std::int64_t place = by_rows ? i * hidden + j : j * wide + i;
            order[static_cast<std::size_t>(place)] =
                static_cast<std::size_t>(by_rows ? from * hidden + j : j * wide + from);
        }
    }
    return order;
}

void on_every_rank(const Workload& work, const std::function<void(int, const Workload&)>& body,
                   const std::function<void()>& give_up) {
    std::exception_ptr failure;
    std::mutex mutex;
    const auto run = [&](int rank) {
        try {
            Workload of_rank = work;
            if (work.recipe.ring > 1) of_rank.ring_rank = rank / work.recipe.ulysses;
            body(rank, of_rank);
        } catch (...) {
            const std::lock_guard lock(mutex);
            if (failure) return;
            failure = std::current_exception();
            give_up();
        }
    };
    {
        std::vector<std::jthread> threads;
        for (int rank = 0; rank < work.recipe.context_parallel(); ++rank) threads.emplace_back(run, rank);
    }
    if (failure) std::rethrow_exception(failure);
}

double relative_error(std::span<const double> got, std::span<const double> wanted) {
    double difference = 0;
    double size = 0;
    for (std::size_t i = 0; i < wanted.size(); ++i) {
        difference += (got[i] - wanted[i]) * (got[i] - wanted[i]);
        size += wanted[i] * wanted[i];
    }
    return std::sqrt(difference / size);
}

double largest_error(std::span<const double> errors) {
    double largest = 0;
    for (const double error : errors) {
        if (std::isnan(error)) return error;
        largest = std::max(largest, error);
    }
    return largest;
}

}  // namespace headroom
