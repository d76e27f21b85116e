// SPDX-License-Identifier: Apache-2.0
// What the checks of attention and of whole steps share: which part of the whole a rank holds, threads for the ranks,
// and errors.
#pragma once

#include <functional>
#include <span>
#include <vector>

#include "models/workload.hpp"

namespace headroom {

/// The rows of a sequence that a rank holds.
class RankRows {
 public:
    /// `work` of the rank, with its place in the ring.
    RankRows(const Workload& work, int ulysses_rank);

    const std::vector<std::int64_t>& positions() const { return positions_; }
    /// Those rows of a whole tensor [S][width].
    template <class T>
    std::vector<T> of(const std::vector<T>& whole, std::int64_t width) const {
        std::vector<T> rows;
        for (const std::int64_t position : positions_) {
            rows.insert(rows.end(), whole.begin() + position * width, whole.begin() + (position + 1) * width);
        }
        return rows;
    }
    /// The inverse of `of`.
    void put(std::vector<double>& whole, const std::vector<float>& rows, std::int64_t width) const;

 private:
    std::vector<std::int64_t> positions_;
};

/// Element i of Wq (`by_rows`), or of Wo, as a schedule has it is element order[i] of the model's.
std::vector<std::size_t> head_order(const Workload& work, bool by_rows);

/// Runs `body` for every rank of `work` at once, on a thread for each: with the rank's number and its workload. When
/// one throws, `give_up` is called, so that no other waits for it, and the first error is thrown at the end.
void on_every_rank(const Workload& work, const std::function<void(int, const Workload&)>& body,
                   const std::function<void()>& give_up);

/// |got - wanted| / |wanted| over all elements; not a number where one is.
double relative_error(std::span<const double> got, std::span<const double> wanted);
/// The largest, or one that is not a number.
double largest_error(std::span<const double> errors);

}  // namespace headroom
