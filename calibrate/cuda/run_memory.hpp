// SPDX-License-Identifier: Apache-2.0
// Memory of an executed schedule: a pool of the driver whose high-water marks are the measured peak, and page-locked
// buffers that are kept for later requests.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <list>
#include <vector>

#include "calibrate/cuda/memory.hpp"
#include "calibrate/live_tensors.hpp"

namespace headroom {

/// Stream-ordered device memory of one GPU, never given back before trim(), and reused in another stream only behind an
/// event: what a step gets does not depend on how fast the GPU ran.
class DevicePool {
 public:
    /// The other GPUs may read and write it: NCCL does, between the threads of one process.
    DevicePool(int gpu, int gpus);
    ~DevicePool();
    DevicePool(const DevicePool&) = delete;
    DevicePool& operator=(const DevicePool&) = delete;

    /// Throws MemoryFull.
    void* allocate(std::int64_t bytes, cudaStream_t stream);
    void release(void* address, cudaStream_t stream) noexcept;
    /// Gives unused memory back to the driver.
    void trim() noexcept;

    std::int64_t reserved() const { return read(cudaMemPoolAttrReservedMemCurrent); }
    std::int64_t most_used() const { return read(cudaMemPoolAttrUsedMemHigh); }
    std::int64_t most_reserved() const { return read(cudaMemPoolAttrReservedMemHigh); }
    /// The marks start again from what is used now.
    void reset_marks();

 private:
    std::int64_t read(cudaMemPoolAttr attribute) const;
    cudaMemPool_t pool_ = nullptr;
};

/// Host tensors. A page-locked buffer costs a third of a second per GiB to make, so it is kept when released and serves
/// later tensors of half its size and more.
class HostBuffers {
 public:
    /// Throws MemoryFull.
    void* allocate(const LiveTensor& wanted);
    void release(const LiveTensor& tensor) noexcept;
    std::int64_t pinned_bytes() const { return pinned_bytes_; }  ///< held, in use or not

 private:
    struct Pinned {
        PinnedBuffer buffer;
        std::int64_t bytes;
        bool used;
    };
    Pinned& pinned(std::int64_t bytes);

    std::list<Pinned> pinned_;
    std::list<MappedPages> pageable_;  ///< of the tensors that are alive
    std::int64_t pinned_bytes_ = 0;
};

}  // namespace headroom
