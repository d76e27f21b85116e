// SPDX-License-Identifier: Apache-2.0
#include "calibrate/cuda/memory.hpp"

#include <fmt/format.h>
#include <sys/mman.h>

#include <cerrno>
#include <cstring>

#include "calibrate/cuda/errors.hpp"
#include "models/error.hpp"

namespace headroom {

DeviceBuffer::DeviceBuffer(std::int64_t bytes) : bytes_(bytes) {
    check_cuda(cudaMalloc(&data_, static_cast<std::size_t>(bytes)), fmt::format("cudaMalloc of {} bytes", bytes));
}

void* GrowingBuffer::at_least(std::int64_t bytes, cudaStream_t stream) {
    if (bytes <= bytes_) return data_;
    if (data_ != nullptr) check_cuda(cudaFreeAsync(std::exchange(data_, nullptr), stream), "cudaFreeAsync");
    bytes_ = 0;
    const cudaError_t status = cudaMallocAsync(&data_, static_cast<std::size_t>(bytes), stream);
    if (status == cudaErrorMemoryAllocation) {
        cudaGetLastError();
        throw Error(fmt::format("out of device memory: {} bytes of a kernel's workspace", bytes), "",
                    "shorten --context, or use more GPUs", ExitCode::does_not_fit);
    }
    check_cuda(status, fmt::format("cudaMallocAsync of {} bytes", bytes));
    bytes_ = bytes;
    return data_;
}

std::int64_t growing_bytes() {
    int gpu = 0;
    cudaMemPool_t pool = nullptr;
    std::uint64_t held = 0;
    check_cuda(cudaGetDevice(&gpu), "cudaGetDevice");
    check_cuda(cudaDeviceGetDefaultMemPool(&pool, gpu), "cudaDeviceGetDefaultMemPool");
    check_cuda(cudaMemPoolGetAttribute(pool, cudaMemPoolAttrReservedMemCurrent, &held), "cudaMemPoolGetAttribute");
    return static_cast<std::int64_t>(held);
}

PinnedBuffer::PinnedBuffer(std::int64_t bytes, unsigned flags) {
    check_cuda(cudaHostAlloc(&data_, static_cast<std::size_t>(bytes), flags),
               fmt::format("cudaHostAlloc of {} bytes", bytes));
}

MappedPages::MappedPages(std::int64_t bytes) : bytes_(static_cast<std::size_t>(bytes)) {
    data_ = ::mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (data_ == MAP_FAILED) {
        data_ = nullptr;
        throw Error(fmt::format("mmap of {} bytes failed: {}", bytes, std::strerror(errno)), "",
                    "free host memory, or leave the probe out with --skip", ExitCode::failure);
    }
}

MappedPages::~MappedPages() {
    if (data_ != nullptr) ::munmap(data_, bytes_);
}

StreamOwner::StreamOwner() {
    check_cuda(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "cudaStreamCreateWithFlags");
}
StreamOwner::~StreamOwner() {
    if (stream_ != nullptr) cudaStreamDestroy(stream_);
}
void StreamOwner::synchronize() const { check_cuda(cudaStreamSynchronize(stream_), "cudaStreamSynchronize"); }

EventOwner::EventOwner() { check_cuda(cudaEventCreate(&event_), "cudaEventCreate"); }
EventOwner::~EventOwner() {
    if (event_ != nullptr) cudaEventDestroy(event_);
}

double seconds_between(const EventOwner& begin, const EventOwner& end) {
    float milliseconds = 0;
    check_cuda(cudaEventElapsedTime(&milliseconds, begin.get(), end.get()), "cudaEventElapsedTime");
    return milliseconds * 1e-3;
}

}  // namespace headroom
