// SPDX-License-Identifier: Apache-2.0
#include "calibrate/cuda/cuda_arithmetic.hpp"

#include <fmt/format.h>

#include <cmath>

#include "calibrate/cuda/errors.hpp"
#include "calibrate/cuda/pointers.hpp"
#include "calibrate/cuda/schedule_kernels.hpp"
#include "models/error.hpp"

namespace headroom {
namespace {

static_assert(norm_kernel_epsilon == static_cast<float>(norm_epsilon));

std::size_t size(std::int64_t bytes) { return static_cast<std::size_t>(bytes); }

/// The moves that there are, in a fixed place.
template <std::size_t count>
struct PlacedMoves {
    PlacedMoves(const std::array<Move, count>& moves, const Addresses& at) {
        for (std::size_t i = 0; i < count; ++i) {
            if (moves[i].bytes > 0) all[used++] = {at[2 * i], at[2 * i + 1], moves[i].bytes};
        }
    }
    std::span<const PlacedMove> list() const { return {all.data(), used}; }
    std::array<PlacedMove, count> all{};
    std::size_t used = 0;
};

/// Kernels take 8 elements a thread.
void require_packs(std::int64_t elements, const char* of) {
    if (elements % 8 == 0) return;
    throw Error(fmt::format("{} of {} elements is no multiple of 8", of, elements), "", "use another number of GPUs",
                ExitCode::failure);
}

}  // namespace

CudaArithmetic::CudaArithmetic() : attention_(stream(Stream::compute)), losses_(sizeof(double)) { take_losses(); }

void CudaArithmetic::prepare(const Schedule& schedule) {
    adam_steps_.clear();
    for (const Description& one : schedule.descriptions) {
        if (const auto* product = std::get_if<Product>(&one.computation)) {
            products_.prepare(*product);
        } else if (const auto* call = std::get_if<AttentionCall>(&one.computation)) {
            attention_.prepare(*call, schedule.events[one.event].attention);
        } else if (const auto* norm = std::get_if<NormBackward>(&one.computation)) {
            column_sums_.at_least(norm_backward_scratch_bytes(norm->width), stream(Stream::compute));
        } else if (const auto* embedding = std::get_if<EmbeddingBackward>(&one.computation)) {
            row_lists_.at_least(embedding_scratch_bytes(embedding->rows, embedding->vocabulary),
                                stream(Stream::compute));
        }
    }
}

std::int64_t CudaArithmetic::scratch_bytes() const {
    return growing_bytes() + products_.scratch_bytes() + losses_.bytes();
}

double CudaArithmetic::take_losses() {
    double sum = 0;
    check_cuda(cudaMemcpy(&sum, losses_.as(), sizeof sum, cudaMemcpyDeviceToHost), "cudaMemcpy");
    check_cuda(cudaMemset(losses_.as(), 0, sizeof sum), "cudaMemset");
    check_cuda(cudaStreamSynchronize(nullptr), "cudaStreamSynchronize");  // the compute stream does not wait for it
    return sum;
}

void CudaArithmetic::compute(Stream on, const Product& what, const Addresses& at) {
    products_.run(stream(on), what, at[0], at[1], at[2]);
}

void CudaArithmetic::compute(Stream on, const Rotary& what, const Addresses& at) {
    const auto* table = reinterpret_cast<const float2*>(at[1]);
    for (std::int64_t block = 0; block < what.blocks; ++block) {
        rotary(stream(on), halves(at[0]) + block * what.rows * what.width, table, {what.rows, what.width},
               what.head_dim, what.back);
    }
}

void CudaArithmetic::compute(Stream on, const AttentionCall& what, const Attention& shape, const Addresses& at) {
    if (on != Stream::compute) {
        throw Error("attention stands on another stream than the compute stream", "", "this is a bug: please report it",
                    ExitCode::failure);
    }
    attention_.run(what, shape, at);
}

void CudaArithmetic::compute(Stream on, const Exchange& what, const Addresses& at) {
    transport_->exchange(stream(on), {at[0], at[1], what.move.bytes});
}

void CudaArithmetic::compute(Stream on, const PassOn& what, const Addresses& at) {
    transport_->pass_on(stream(on), PlacedMoves(what.moves, at).list());
}

void CudaArithmetic::compute(Stream on, const Transfer& what, const Addresses& at) {
    const PlacedMoves moves(what.moves, at);
    for (const PlacedMove& move : moves.list()) {
        check_cuda(cudaMemcpyAsync(move.to, move.from, size(move.bytes), cudaMemcpyDefault, stream(on)),
                   "cudaMemcpyAsync");
    }
}

void CudaArithmetic::compute(Stream on, const Convert& what, const Addresses& at) {
    if (what.widen) {
        cast_up(stream(on), halves(at[0]), floats(at[1]), what.elements);
    } else {
        cast_down(stream(on), floats(at[0]), halves(at[1]), what.elements);
    }
}

void CudaArithmetic::compute(Stream on, const AddTo& what, const Addresses& at) {
    if (what.wide_sum) {
        mixed_add(stream(on), floats(at[0]), halves(at[1]), what.elements);
    } else {
        add(stream(on), halves(at[0]), halves(at[1]), halves(at[0]), what.elements);
    }
}

void CudaArithmetic::compute(Stream on, const Merge& what, const Addresses& at) {
    float* sum = floats(at[0]) + what.first_row * what.heads * what.head_dim;
    merge_rows(stream(on), what, sum, floats(at[1]), halves(at[2]), floats(at[3]));
}

void CudaArithmetic::compute(Stream on, const SliceExponent& what, const Addresses& at) {
    check_cuda(cudaMemcpy2DAsync(at[1], size(what.rows) * 4, floats(at[0]) + what.first_row, size(what.total_rows) * 4,
                                 size(what.rows) * 4, size(what.heads), cudaMemcpyDeviceToDevice, stream(on)),
               "cudaMemcpy2DAsync");
}

void CudaArithmetic::compute(Stream on, const Norm& what, const Addresses& at) {
    norm_forward(stream(on), halves(at[0]), halves(at[1]), halves(at[2]), nullptr, {what.rows, what.width});
}

void CudaArithmetic::compute(Stream on, const NormBackward& what, const Addresses& at) {
    void* sums = column_sums_.at_least(norm_backward_scratch_bytes(what.width), stream(on));
    norm_backward(stream(on), halves(at[0]), halves(at[1]), halves(at[2]), halves(at[3]), static_cast<float*>(sums),
                  halves(at[4]), {what.rows, what.width});
}

void CudaArithmetic::compute(Stream on, const Gate& what, const Addresses& at) {
    swiglu_forward(stream(on), halves(at[0]), halves(at[1]), halves(at[2]), what.elements);
}

void CudaArithmetic::compute(Stream on, const GateBackward& what, const Addresses& at) {
    swiglu_backward(stream(on), halves(at[0]), halves(at[1]), halves(at[2]), halves(at[3]), halves(at[4]),
                    what.elements);
}

void CudaArithmetic::compute(Stream on, const Sum& what, const Addresses& at) {
    add(stream(on), halves(at[0]), halves(at[1]), halves(at[2]), what.elements);
}

void CudaArithmetic::compute(Stream on, const Embedding& what, const Addresses& at) {
    embedding(stream(on), halves(at[0]), integers(at[1]), halves(at[2]), {what.rows, what.width});
}

void CudaArithmetic::compute(Stream on, const EmbeddingBackward& what, const Addresses& at) {
    void* lists = row_lists_.at_least(embedding_scratch_bytes(what.rows, what.vocabulary), stream(on));
    embedding_backward(stream(on), halves(at[0]), integers(at[1]), halves(at[2]), {what.rows, what.width},
                       what.vocabulary, static_cast<int*>(lists));
}

void CudaArithmetic::compute(Stream on, const CrossEntropy& what, const Addresses& at) {
    cross_entropy(stream(on), halves(at[0]), integers(at[1]), floats(at[2]), {what.rows, what.columns}, what.weight);
    add_losses(stream(on), floats(at[2]), what.rows, losses_.as<double>());
}

void CudaArithmetic::compute(Stream on, const GatherShards& what, const Addresses& at) {
    require_packs(what.elements, "a shard");
    cast_down(stream(on), floats(at[0]), halves(at[1]) + transport_->place() * what.elements, what.elements);
    transport_->gather(stream(on), at[1], 2 * what.elements);
}

void CudaArithmetic::compute(Stream on, const ReduceScatter& what, const Addresses& at) {
    transport_->reduce_scatter(stream(on), floats(at[0]), floats(at[1]), what.elements);
}

void CudaArithmetic::compute(Stream on, const CopyIn& what, const Addresses& at) {
    cast_up(stream(on), halves(at[0]), floats(at[1]), what.elements);
}

void CudaArithmetic::compute(Stream on, const Adam& what, const Addresses& at) {
    require_packs(what.elements, "a shard");
    const int step = ++adam_steps_[at[0]];
    const auto share = [step](double beta) { return static_cast<float>(1 - std::pow(beta, step)); };
    adam_step(
        stream(on), floats(at[0]), floats(at[1]), floats(at[2]), floats(at[3]), what.elements,
        {static_cast<float>(adam_settings.rate), static_cast<float>(adam_settings.first_beta),
         static_cast<float>(adam_settings.second_beta), static_cast<float>(adam_settings.epsilon),
         static_cast<float>(adam_settings.decay), share(adam_settings.first_beta), share(adam_settings.second_beta)});
}

}  // namespace headroom
