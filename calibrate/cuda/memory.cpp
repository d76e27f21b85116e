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

}  // namespace headroom
