// SPDX-License-Identifier: Apache-2.0
#include "calibrate/cuda/check_device.hpp"

#include <bit>
#include <cmath>
#include <numeric>

#include "calibrate/attention_limits.hpp"
#include "calibrate/cuda/errors.hpp"
#include "calibrate/cuda/schedule_kernels.hpp"
#include "calibrate/host_device.hpp"
#include "models/error.hpp"

namespace headroom {
namespace {

bf16* halves(std::byte* address) { return reinterpret_cast<bf16*>(address); }
float* floats(std::byte* address) { return reinterpret_cast<float*>(address); }
std::size_t size(std::int64_t bytes) { return static_cast<std::size_t>(bytes); }

/// To nearest even; the values given are exact.
std::uint16_t to_bf16(float value) {
    const auto bits = std::bit_cast<std::uint32_t>(value);
    return static_cast<std::uint16_t>((bits + 0x7fff + ((bits >> 16) & 1)) >> 16);
}

DeviceBuffer angle_table(const std::vector<std::int64_t>& positions, int head_dim) {
    std::vector<float> table;
    for (const std::int64_t position : positions) {
        for (int pair = 0; pair < head_dim / 2; ++pair) {
            const double angle = rotary_angle(position, pair, head_dim);
            table.push_back(static_cast<float>(std::cos(angle)));
            table.push_back(static_cast<float>(std::sin(angle)));
        }
    }
    DeviceBuffer buffer(static_cast<std::int64_t>(table.size() * sizeof(float)));
    check_cuda(cudaMemcpy(buffer.as(), table.data(), table.size() * sizeof(float), cudaMemcpyHostToDevice),
               "cudaMemcpy");
    return buffer;
}

std::vector<std::int64_t> first_positions(std::int64_t count) {
    std::vector<std::int64_t> positions(static_cast<std::size_t>(count));
    std::iota(positions.begin(), positions.end(), std::int64_t{0});
    return positions;
}

}  // namespace

CheckDevice::CheckDevice(std::unique_ptr<RankTransport> transport, std::vector<std::int64_t> positions,
                         std::int64_t context, int head_dim)
    : transport_(std::move(transport)),
      cudnn_(compute()),
      local_angles_(angle_table(positions, head_dim)),
      all_angles_(angle_table(first_positions(context), head_dim)) {}

CheckDevice::~CheckDevice() {
    for (const StreamOwner& stream : streams_) cudaStreamSynchronize(stream.get());
}

void CheckDevice::settle() {
    for (const StreamOwner& stream : streams_) transport_->wait(stream.get());
}

std::byte* CheckDevice::allocate(const char*, std::int64_t bytes, Place place) {
    void* address = nullptr;
    if (place == Place::device) {
        check_cuda(cudaMallocAsync(&address, size(bytes), compute()), "cudaMallocAsync");
        // Not a number until written: what nobody wrote does not pass for a result.
        check_cuda(cudaMemsetAsync(address, 0xff, size(bytes), compute()), "cudaMemsetAsync");
    } else {
        check_cuda(cudaMallocHost(&address, size(bytes)), "cudaMallocHost");
    }
    return static_cast<std::byte*>(address);
}

void CheckDevice::release(std::byte* address, Place place) {
    if (place == Place::device) {
        cudaFreeAsync(address, compute());
    } else {
        cudaStreamSynchronize(compute());
        cudaFreeHost(address);
    }
}

void CheckDevice::record(Stream stream, SyncId sync) {
    check_cuda(cudaEventRecord(syncs_[sync].get(), get(stream)), "cudaEventRecord");
}

void CheckDevice::wait(Stream stream, SyncId sync) {
    check_cuda(cudaStreamWaitEvent(get(stream), syncs_.at(sync).get(), 0), "cudaStreamWaitEvent");
}

void CheckDevice::upload(std::byte* to, std::span<const float> values) {
    std::vector<std::uint16_t> raw;
    raw.reserve(values.size());
    for (const float value : values) raw.push_back(to_bf16(value));
    settle();
    check_cuda(cudaMemcpy(to, raw.data(), raw.size() * 2, cudaMemcpyHostToDevice), "cudaMemcpy");
}

void CheckDevice::download(std::span<float> values, const std::byte* from) {
    std::vector<std::uint16_t> raw(values.size());
    settle();
    check_cuda(cudaMemcpy(raw.data(), from, raw.size() * 2, cudaMemcpyDeviceToHost), "cudaMemcpy");
    for (std::size_t i = 0; i < raw.size(); ++i) {
        values[i] = std::bit_cast<float>(static_cast<std::uint32_t>(raw[i]) << 16);
    }
}

void CheckDevice::product(Stream stream, const Product& what, const Addresses& at) {
    products_.run(get(stream), what, at[0], at[1], at[2]);
}

void CheckDevice::rotary(Stream stream, const Rotary& what, std::byte* data, int head_dim) {
    const auto* table = what.first_position < 0 ? local_angles_.as<float2>()
                                                : all_angles_.as<float2>() + what.first_position * (head_dim / 2);
    for (std::int64_t block = 0; block < what.blocks; ++block) {
        headroom::rotary(get(stream), halves(data) + block * what.rows * what.width, table, {what.rows, what.width},
                         head_dim, what.back);
    }
}

void CheckDevice::attention(Stream stream, const Attention& shape, const Addresses& at) {
    if (get(stream) != compute() || head_slices(shape).size() != 1) {
        throw Error("attention of this size is not for a check", "calibrate check", "use smaller tensors");
    }
    auto& plan = plans_[{shape.query_len, shape.key_len, shape.heads, shape.kv_heads, shape.head_dim, shape.causal,
                         shape.backward}];
    if (!plan) {
        plan = std::make_unique<AttentionPlan>(cudnn_.get(), shape,
                                               AttentionStrides{std::int64_t{shape.heads} * shape.head_dim,
                                                                std::int64_t{shape.kv_heads} * shape.head_dim});
        if (plan->workspace_bytes() > workspace_.bytes()) {
            transport_->wait(compute());
            workspace_ = DeviceBuffer(plan->workspace_bytes());
        }
    }
    plan->bind({.query = halves(at[0]),
                .key = halves(at[1]),
                .value = halves(at[2]),
                .out = halves(at[3]),
                .exponent = floats(at[4]),
                .out_gradient = halves(at[5]),
                .query_gradient = halves(at[6]),
                .key_gradient = halves(at[7]),
                .value_gradient = halves(at[8]),
                .accumulator = floats(at[9]),
                .delta = floats(at[10])},
               workspace_.as());
    plan->execute();
}

void CheckDevice::convert(Stream stream, const Convert& what, std::byte* from, std::byte* to) {
    if (what.widen) {
        cast_up(get(stream), halves(from), floats(to), what.elements);
    } else {
        cast_down(get(stream), floats(from), halves(to), what.elements);
    }
}

void CheckDevice::add(Stream stream, const AddTo& what, std::byte* sum, std::byte* term) {
    if (what.wide_sum) {
        mixed_add(get(stream), floats(sum), halves(term), what.elements);
    } else {
        headroom::add(get(stream), halves(sum), halves(term), halves(sum), what.elements);
    }
}

void CheckDevice::merge(Stream stream, const Merge& what, const Addresses& at, int head_dim) {
    float* sum = floats(at[0]) + what.first_row * what.heads * head_dim;
    merge_rows(get(stream), what, head_dim, sum, floats(at[1]), halves(at[2]), floats(at[3]));
}

void CheckDevice::slice(Stream stream, const SliceExponent& what, std::byte* from, std::byte* to) {
    check_cuda(cudaMemcpy2DAsync(to, size(what.rows) * 4, floats(from) + what.first_row, size(what.total_rows) * 4,
                                 size(what.rows) * 4, size(what.heads), cudaMemcpyDeviceToDevice, get(stream)),
               "cudaMemcpy2DAsync");
}

void CheckDevice::transfer(Stream stream, std::span<const ByteMove> moves) {
    for (const ByteMove& move : moves) {
        check_cuda(cudaMemcpyAsync(move.to, move.from, size(move.bytes), cudaMemcpyDefault, get(stream)),
                   "cudaMemcpyAsync");
    }
}

}  // namespace headroom
