// SPDX-License-Identifier: Apache-2.0
// Runs described schedules on a GPU: cuDNN attention, cuBLASLt products, our kernels, and collectives through NCCL, or
// between ranks that share one GPU.
#pragma once

#include <array>
#include <map>
#include <memory>
#include <vector>

#include "calibrate/cuda/attention.hpp"
#include "calibrate/cuda/memory.hpp"
#include "calibrate/cuda/product.hpp"
#include "calibrate/interpreter.hpp"

namespace headroom {

/// How a rank reaches the others. Enqueues on the stream, or waits for it.
class RankTransport {
 public:
    virtual ~RankTransport() = default;
    virtual void exchange(cudaStream_t stream, const ByteMove& move) = 0;
    virtual void pass_on(cudaStream_t stream, std::span<const ByteMove> moves) = 0;
    /// Waits for the stream; the error of a peer that died ends the wait.
    virtual void wait(cudaStream_t stream) = 0;
};

class CheckDevice : public ComputeDevice {
 public:
    /// On the current GPU, from the thread that uses it. `positions` of the rank's rows; `context` is the sequence.
    CheckDevice(std::unique_ptr<RankTransport> transport, std::vector<std::int64_t> positions, std::int64_t context,
                int head_dim);
    ~CheckDevice() override;

    std::byte* allocate(const char* name, std::int64_t bytes, Place place) override;
    void release(std::byte* address, Place place) override;
    void record(Stream stream, SyncId sync) override;
    void wait(Stream stream, SyncId sync) override;
    void host_wait(Stream stream) override { transport_->wait(get(stream)); }
    void upload(std::byte* to, std::span<const float> values) override;
    void download(std::span<float> values, const std::byte* from) override;

    void product(Stream stream, const Product& what, const Addresses& at) override;
    void rotary(Stream stream, const Rotary& what, std::byte* data, int head_dim) override;
    void attention(Stream stream, const Attention& shape, const Addresses& at) override;
    void convert(Stream stream, const Convert& what, std::byte* from, std::byte* to) override;
    void add(Stream stream, const AddTo& what, std::byte* sum, std::byte* term) override;
    void merge(Stream stream, const Merge& what, const Addresses& at, int head_dim) override;
    void slice(Stream stream, const SliceExponent& what, std::byte* from, std::byte* to) override;
    void transfer(Stream stream, std::span<const ByteMove> moves) override;
    void exchange(Stream stream, const ByteMove& move) override { transport_->exchange(get(stream), move); }
    void pass_on(Stream stream, std::span<const ByteMove> moves) override { transport_->pass_on(get(stream), moves); }

 private:
    cudaStream_t get(Stream stream) const { return streams_[static_cast<std::size_t>(stream)].get(); }
    cudaStream_t compute() const { return get(Stream::compute); }
    void settle();

    std::unique_ptr<RankTransport> transport_;
    std::array<StreamOwner, stream_count> streams_;
    std::map<SyncId, EventOwner> syncs_;
    CudnnHandle cudnn_;
    Products products_;
    DeviceBuffer workspace_;
    DeviceBuffer local_angles_, all_angles_;  ///< (cosine, sine) of each row and pair
    std::map<std::array<std::int64_t, 7>, std::unique_ptr<AttentionPlan>> plans_;
};

}  // namespace headroom
