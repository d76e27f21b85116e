// SPDX-License-Identifier: Apache-2.0
// What a check runs described schedules on, on a GPU.
#pragma once

#include <map>
#include <memory>

#include "calibrate/cuda/cuda_arithmetic.hpp"
#include "calibrate/interpreter.hpp"

namespace headroom {

class CheckDevice : public ComputeDevice, public CudaArithmetic {
 public:
    /// On the current GPU, from the thread that uses it.
    explicit CheckDevice(std::unique_ptr<RankTransport> transport) { connect(std::move(transport)); }
    ~CheckDevice() override;

    std::byte* allocate(const char* name, std::int64_t bytes, Place place, Stream of) override;
    void release(std::byte* address, Place place, Stream of) override;
    void record(Stream stream, SyncId sync) override;
    void wait(Stream stream, SyncId sync) override;
    void host_wait(Stream which) override { transport().wait(stream(which)); }
    void upload(std::byte* to, std::span<const float> values) override;
    void download(std::span<float> values, const std::byte* from) override;
    void upload_bytes(std::byte* to, std::span<const std::byte> bytes) override;
    void download_bytes(std::span<std::byte> bytes, const std::byte* from) override;
    double take_loss() override;

 private:
    cudaStream_t compute_stream() const { return stream(Stream::compute); }
    void settle();

    std::map<SyncId, EventOwner> syncs_;
};

}  // namespace headroom
