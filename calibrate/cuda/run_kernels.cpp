// SPDX-License-Identifier: Apache-2.0
#include "calibrate/cuda/run_kernels.hpp"

#include <algorithm>
#include <cmath>

#include "calibrate/cuda/errors.hpp"
#include "calibrate/cuda/move.hpp"
#include "models/error.hpp"
#include "models/units.hpp"

namespace headroom {
namespace {

/// A tensor's place in a region that begins at `base`, and the next one behind it.
class Places {
 public:
    explicit Places(void* base) : at_(static_cast<char*>(base)) {}
    template <class Element>
    Element* next(std::int64_t elements) {
        auto* place = reinterpret_cast<Element*>(at_);
        at_ += round_up(elements * static_cast<std::int64_t>(sizeof(Element)), 256);
        return place;
    }

 private:
    char* at_;
};

std::int64_t query_elements(const Attention& a) { return a.query_len * a.heads * a.head_dim; }
std::int64_t key_elements(const Attention& a) { return a.key_len * a.kv_heads * a.head_dim; }

/// Bytes of one launch that only moves them: operands stay small beside the tensors, and a launch long.
constexpr std::int64_t largest_move = 4 * gibi;

bool only_moves(const MemoryLaunch& work) { return work.kernel == RealKernel::move || work.kernel == RealKernel::copy; }

Attention part_of(const Attention& shape, const HeadSlice& slice) {
    Attention part = shape;
    part.heads = slice.heads;
    part.kv_heads = slice.kv_heads;
    return part;
}

}  // namespace

RunKernels::RunKernels(cudaStream_t compute)
    : compute_(compute), cudnn_(compute), gemm_workspace_(gemm_workspace_bytes) {}

RunKernels::AttentionKey RunKernels::key_of(const Attention& a) {
    return {a.query_len, a.key_len, a.heads, a.kv_heads, a.head_dim, a.causal, a.backward};
}

RunKernels::GemmKey RunKernels::key_of(const Event& event) {
    return {event.gemm.m, event.gemm.n, event.gemm.k, product_role(event)};
}

RunKernels::Need RunKernels::need_of(const Attention& a) const {
    const std::int64_t query = 2 * query_elements(a), key = 2 * key_elements(a);
    constexpr std::int64_t gaps = 16 * 256;
    const std::int64_t workspace = workspace_bytes(a);
    if (!a.backward) return {query + 2 * key + gaps, query + 4 * a.heads * a.query_len + workspace + gaps};
    return {3 * query + 2 * key + gaps, query + 2 * key + workspace + gaps};
}

RunKernels::Need RunKernels::need_of(const Event& event) const {
    switch (event.kind) {
        case EventKind::attention:
            return need_of(event.attention);
        case EventKind::gemm: {
            const Gemm& g = event.gemm;
            return {2 * (g.m * g.k + g.n * g.k), 2 * g.m * g.n};
        }
        case EventKind::memory_bound: {
            // In place or not, no operand is larger than what is moved.
            const MemoryLaunch work = real_kernel(event);
            if (only_moves(work)) return {std::min(work.read, largest_move), std::min(work.written, largest_move)};
            return {work.read + work.written, work.read + work.written};
        }
        case EventKind::collective:
            return {event.collective.bytes, event.collective.bytes};
        case EventKind::copy:
            return {event.copy.bytes, event.copy.bytes};
        default:
            return {};
    }
}

void RunKernels::prepare(const Schedule& schedule, const TransformerShape& model) {
    hidden_ = model.hidden;
    head_dim_ = model.head_dim;
    heads_ = model.heads;
    std::int64_t exponents = 0, longest = 1;
    for (const Event& event : schedule.events) {
        if (event.kind == EventKind::attention) {
            add_plan(event.attention);
            exponents = std::max(exponents, event.attention.heads * event.attention.query_len);
            longest = std::max(longest, event.attention.key_len);
        } else if (event.kind == EventKind::gemm) {
            auto& plan = gemms_[key_of(event)];
            if (!plan) {
                plan = std::make_unique<GemmPlan>(blas_.get(), event.gemm.m, event.gemm.n, event.gemm.k,
                                                  product_role(event));
            }
        }
    }
    Need need{64 * mebi, 64 * mebi};  // more than any operand that an event does not count
    for (const Event& event : schedule.events) {
        const Need one = need_of(event);
        need.in = std::max(need.in, one.in);
        need.out = std::max(need.out, one.out);
    }
    // Either all of it stays or all of it goes, so that it fits where it fitted before.
    if (need.in > in_.bytes() || need.out > out_.bytes()) {
        if (in_.reserve(need.in)) fill_normal(compute_, static_cast<bf16*>(in_.base()), in_.bytes() / 2, 1);
        if (out_.reserve(need.out)) fill_normal(compute_, static_cast<bf16*>(out_.base()), out_.bytes() / 2, 2);
    }
    if (exponents_.bytes() < 4 * exponents) {
        exponents_ = DeviceBuffer();
        exponents_ = DeviceBuffer(4 * exponents);
    }
    // Scores of random numbers have variance one: their log-sum-exp over n keys is about log n + 1/2.
    if (exponents > 0) {
        fill_value(compute_, exponents_.as<float>(), exponents, std::log(static_cast<float>(longest)) + 0.5F);
    }
    for (const Event& event : schedule.events) {
        if (event.kind == EventKind::attention) bind(event.attention, attention_.at(key_of(event.attention)));
    }
    check_cuda(cudaStreamSynchronize(compute_), "cudaStreamSynchronize");
}

std::int64_t RunKernels::scratch_bytes() const {
    return in_.bytes() + out_.bytes() + exponents_.bytes() + gemm_workspace_.bytes();
}

void RunKernels::add_plan(const Attention& shape) {
    AttentionCalls& calls = attention_[key_of(shape)];
    if (!calls.plans.empty()) return;
    calls.slices = head_slices(shape);
    const AttentionStrides strides{std::int64_t{shape.heads} * shape.head_dim,
                                   std::int64_t{shape.kv_heads} * shape.head_dim};
    for (const HeadSlice& slice : calls.slices) {
        auto plan = std::make_unique<AttentionPlan>(cudnn_.get(), part_of(shape, slice), strides);
        if (shape.head_dim == 128 && plan->shared_memory() < hopper_shared_memory) {
            throw Error("cuDNN chose an engine that is not the Hopper one", "",
                        "use cuDNN 9.14 or 9.19 on a Hopper GPU", ExitCode::failure);
        }
        calls.plans.push_back(std::move(plan));
    }
}

std::int64_t RunKernels::workspace_bytes(const Attention& shape) const {
    const AttentionCalls& calls = attention_.at(key_of(shape));
    std::int64_t most = 0;
    for (std::size_t i = 0; i < calls.plans.size(); ++i) {
        most =
            std::max(most, calls.plans[i]->workspace_bytes() + caller_workspace_bytes(part_of(shape, calls.slices[i])));
    }
    return most;
}

void RunKernels::bind(const Attention& a, AttentionCalls& calls) {
    Places in(in_.base()), out(out_.base());
    AttentionTensors whole{};
    whole.query = in.next<bf16>(query_elements(a));
    whole.key = in.next<bf16>(key_elements(a));
    whole.value = in.next<bf16>(key_elements(a));
    if (a.backward) {
        whole.out = in.next<bf16>(query_elements(a));
        whole.out_gradient = in.next<bf16>(query_elements(a));
        whole.exponent = exponents_.as<float>();
        whole.query_gradient = out.next<bf16>(query_elements(a));
        whole.key_gradient = out.next<bf16>(key_elements(a));
        whole.value_gradient = out.next<bf16>(key_elements(a));
        whole.accumulator = out.next<float>(query_elements(part_of(a, calls.slices.front())));
        whole.delta = out.next<float>(std::int64_t{calls.slices.front().heads} * a.query_len);
    } else {
        whole.out = out.next<bf16>(query_elements(a));
        whole.exponent = out.next<float>(a.heads * a.query_len);
    }
    void* workspace = out.next<char>(0);
    for (std::size_t i = 0; i < calls.plans.size(); ++i) {
        const HeadSlice& slice = calls.slices[i];
        const std::int64_t query = std::int64_t{slice.first} * a.head_dim,
                           key = std::int64_t{slice.first_kv} * a.head_dim;
        AttentionTensors part = whole;
        for (bf16** tensor : {&part.query, &part.out, &part.out_gradient, &part.query_gradient}) {
            if (*tensor != nullptr) *tensor += query;
        }
        for (bf16** tensor : {&part.key, &part.value, &part.key_gradient, &part.value_gradient}) {
            if (*tensor != nullptr) *tensor += key;
        }
        part.exponent += slice.first * a.query_len;
        calls.plans[i]->bind(part, workspace);
    }
}

void RunKernels::attention(const Attention& shape) const {
    for (const auto& plan : attention_.at(key_of(shape)).plans) plan->execute();
}

void RunKernels::gemm(const Event& event, cudaStream_t stream) {
    const Gemm& g = event.gemm;
    const GemmPlan& plan = *gemms_.at(key_of(event));
    // Weights stay where they are over the tiles; the rows change.
    const bool weights_left = product_role(event) == ProductRole::weight_gradient;
    const void* weights = in_.take(2 * g.n * g.k);
    for (std::int32_t i = 0; i < g.count; ++i) {
        if (weights_left && i > 0) weights = in_.take(2 * g.n * g.k);  // both operands are rows there
        plan.run(stream, in_.take(2 * g.m * g.k), weights, out_.take(2 * g.m * g.n), gemm_workspace_.as());
    }
}

void RunKernels::memory_bound(const Event& event, cudaStream_t stream) {
    const MemoryLaunch work = real_kernel(event);
    for (std::int32_t i = 0; i < event.memory_bound.count; ++i) {
        if (!only_moves(work)) {
            launch(work, stream);
            continue;
        }
        const std::int64_t pieces = divide_round_up(std::max(work.read, work.written), largest_move);
        for (std::int64_t piece = 0; piece < pieces; ++piece) {
            launch({work.kernel, 0, work.read / pieces, work.written / pieces}, stream);
        }
    }
}

void RunKernels::launch(const MemoryLaunch& work, cudaStream_t stream) {
    const auto elements = work.elements / 8 * 8;  // packs of 16 bytes
    const auto in = [&](std::int64_t bytes) { return in_.take(bytes); };
    const auto out = [&](std::int64_t bytes) { return out_.take(bytes); };
    const Shape rows{elements / hidden_, hidden_};
    switch (work.kernel) {
        case RealKernel::copy:
            check_cuda(cudaMemcpyAsync(out(work.written), in(work.read), static_cast<std::size_t>(work.read),
                                       cudaMemcpyDeviceToDevice, stream),
                       "cudaMemcpyAsync");
            return;
        case RealKernel::move:
            return move_bytes(stream, in(work.read), work.read, out(work.written), work.written);
        case RealKernel::cast_up:
            return cast_up(stream, static_cast<const bf16*>(in(2 * elements)), static_cast<float*>(out(4 * elements)),
                           elements);
        case RealKernel::cast_down:
            return cast_down(stream, static_cast<const float*>(in(4 * elements)), static_cast<bf16*>(out(2 * elements)),
                             elements);
        case RealKernel::add:
            return add(stream, static_cast<const bf16*>(in(2 * elements)), static_cast<const bf16*>(in(2 * elements)),
                       static_cast<bf16*>(out(2 * elements)), elements);
        case RealKernel::merge: {
            const std::int64_t exponents = elements / head_dim_;
            return merge(stream, static_cast<float*>(out(4 * elements)), static_cast<float*>(out(4 * exponents)),
                         static_cast<const bf16*>(in(2 * elements)), static_cast<const float*>(in(4 * exponents)),
                         Shape{exponents, head_dim_}, static_cast<int>(head_dim_));
        }
        case RealKernel::mixed_add:
            return mixed_add(stream, static_cast<float*>(out(4 * elements)), static_cast<const bf16*>(in(2 * elements)),
                             elements);
        case RealKernel::rotary:
            if (rows.rows == 0) return;
            return rotary(stream, static_cast<bf16*>(out(2 * rows.elements())),
                          static_cast<const float2*>(in(4 * rows.rows * head_dim_)), rows, static_cast<int>(head_dim_),
                          false);
        case RealKernel::norm_forward:
            if (rows.rows == 0) return;
            return norm_forward(stream, static_cast<const bf16*>(in(2 * rows.elements())),
                                static_cast<const bf16*>(in(2 * hidden_)), static_cast<bf16*>(out(2 * rows.elements())),
                                static_cast<float*>(out(4 * rows.rows)), rows);
        case RealKernel::norm_backward:
            if (rows.rows == 0) return;
            return norm_backward(
                stream, static_cast<const bf16*>(in(2 * rows.elements())), static_cast<const bf16*>(in(2 * hidden_)),
                static_cast<const float*>(in(4 * rows.rows)), static_cast<const bf16*>(in(2 * rows.elements())),
                static_cast<bf16*>(out(2 * rows.elements())),
                static_cast<float*>(out(4 * norm_backward_blocks * hidden_)), static_cast<float*>(out(4 * hidden_)),
                rows);
        case RealKernel::swap_axes:
            return swap_axes(stream, static_cast<const bf16*>(in(2 * elements)), static_cast<bf16*>(out(2 * elements)),
                             elements / head_dim_ / heads_, heads_, head_dim_);
    }
}

void RunKernels::collective(const Collective& op, const CommEnd& end, cudaStream_t stream) {
    if (end.ranks == 1) return;  // what a rank sends itself is there already
    enqueue_collective(end, op.kind, op.bytes, in_.take(op.bytes), out_.take(op.bytes), stream);
}

void RunKernels::copy(const Copy& op, HostBuffers& host, cudaStream_t stream) {
    void* pages = host.operand(op.bytes, op.pinned);
    const auto bytes = static_cast<std::size_t>(op.bytes);
    if (op.to_host) {
        check_cuda(cudaMemcpyAsync(pages, in_.take(op.bytes), bytes, cudaMemcpyDeviceToHost, stream),
                   "cudaMemcpyAsync");
    } else {
        check_cuda(cudaMemcpyAsync(out_.take(op.bytes), pages, bytes, cudaMemcpyHostToDevice, stream),
                   "cudaMemcpyAsync");
    }
}

}  // namespace headroom
