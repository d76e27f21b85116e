// SPDX-License-Identifier: Apache-2.0
// What a described schedule needs of whatever runs it: something that can do each computation.
#pragma once

#include <array>
#include <cstddef>

#include "models/schedule.hpp"

namespace headroom {

/// Added to the mean square of a row by Norm.
inline constexpr double norm_epsilon = 1e-5;

/// Of AdamW, as models/computation.hpp says; `decay` is a share of the rate.
struct AdamSettings {
    double rate = 3e-4, first_beta = 0.9, second_beta = 0.95, epsilon = 1e-8, decay = 0.1;
};
inline constexpr AdamSettings adam_settings{};

/// Where a computation's views lie, in the order in which its structure declares them; null where one is empty.
using Addresses = std::array<std::byte*, 12>;

/// Everything is enqueued on a stream and may be done later.
class Arithmetic {
 public:
    virtual ~Arithmetic() = default;
    virtual void compute(Stream stream, const Product& what, const Addresses& at) = 0;
    virtual void compute(Stream stream, const Rotary& what, const Addresses& at) = 0;
    virtual void compute(Stream stream, const AttentionCall& what, const Attention& shape, const Addresses& at) = 0;
    virtual void compute(Stream stream, const Exchange& what, const Addresses& at) = 0;
    virtual void compute(Stream stream, const PassOn& what, const Addresses& at) = 0;
    virtual void compute(Stream stream, const Transfer& what, const Addresses& at) = 0;
    virtual void compute(Stream stream, const Convert& what, const Addresses& at) = 0;
    virtual void compute(Stream stream, const AddTo& what, const Addresses& at) = 0;
    virtual void compute(Stream stream, const Merge& what, const Addresses& at) = 0;
    virtual void compute(Stream stream, const SliceExponent& what, const Addresses& at) = 0;
    virtual void compute(Stream stream, const Norm& what, const Addresses& at) = 0;
    virtual void compute(Stream stream, const NormBackward& what, const Addresses& at) = 0;
    virtual void compute(Stream stream, const Gate& what, const Addresses& at) = 0;
    virtual void compute(Stream stream, const GateBackward& what, const Addresses& at) = 0;
    virtual void compute(Stream stream, const Sum& what, const Addresses& at) = 0;
    virtual void compute(Stream stream, const Embedding& what, const Addresses& at) = 0;
    virtual void compute(Stream stream, const EmbeddingBackward& what, const Addresses& at) = 0;
    virtual void compute(Stream stream, const CrossEntropy& what, const Addresses& at) = 0;
    virtual void compute(Stream stream, const GatherShards& what, const Addresses& at) = 0;
    virtual void compute(Stream stream, const ReduceScatter& what, const Addresses& at) = 0;
    virtual void compute(Stream stream, const CopyIn& what, const Addresses& at) = 0;
    virtual void compute(Stream stream, const Adam& what, const Addresses& at) = 0;
};

/// The views of a computation in the order in which its structure declares them.
std::array<View, 12> views_of(const Computation& computation);

/// Does one computation of the launch `event`; `resolve(view)` is the address of a view that is not empty.
template <class Resolve>
void perform(Arithmetic& on, const Event& event, const Computation& computation, Resolve resolve) {
    const std::array<View, 12> views = views_of(computation);
    Addresses at{};
    for (std::size_t i = 0; i < at.size(); ++i) {
        if (!views[i].empty()) at[i] = resolve(views[i]);
    }
    std::visit(
        [&](const auto& what) {
            if constexpr (std::is_same_v<decltype(what), const AttentionCall&>) {
                on.compute(event.stream, what, event.attention, at);
            } else {
                on.compute(event.stream, what, at);
            }
        },
        computation);
}

/// The computations of the launch at `index` of Schedule::events, [first, last) of its descriptions; none where it says
/// nothing.
struct ComputationRange {
    const Description *first, *last;
    const Description* begin() const { return first; }
    const Description* end() const { return last; }
    bool empty() const { return first == last; }
};
ComputationRange described(const Schedule& schedule, std::uint32_t index);

}  // namespace headroom
