// SPDX-License-Identifier: Apache-2.0
// Owners of device memory, host memory, streams and events.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>

namespace headroom {

class DeviceBuffer {
 public:
    DeviceBuffer() = default;
    explicit DeviceBuffer(std::int64_t bytes);
    DeviceBuffer(DeviceBuffer&& other) noexcept : data_(std::exchange(other.data_, nullptr)), bytes_(other.bytes_) {}
    DeviceBuffer& operator=(DeviceBuffer&& other) noexcept {
        std::swap(data_, other.data_);
        std::swap(bytes_, other.bytes_);
        return *this;
    }
    ~DeviceBuffer() { cudaFree(data_); }

    template <class Element = void>
    Element* as() const {
        return static_cast<Element*>(data_);
    }
    std::int64_t bytes() const { return bytes_; }

 private:
    void* data_ = nullptr;
    std::int64_t bytes_ = 0;
};

/// Device memory for work in the order of one stream, which needs more of it now and then. What was there is lost when
/// it grows, and nobody waits.
class GrowingBuffer {
 public:
    GrowingBuffer() = default;
    GrowingBuffer(const GrowingBuffer&) = delete;
    GrowingBuffer& operator=(const GrowingBuffer&) = delete;
    ~GrowingBuffer() { cudaFree(data_); }
    void* at_least(std::int64_t bytes, cudaStream_t stream);

 private:
    void* data_ = nullptr;
    std::int64_t bytes_ = 0;
};

/// What the driver holds for all GrowingBuffers of the current GPU.
std::int64_t growing_bytes();

/// Page-locked, usable from every stream, its pages touched.
class PinnedBuffer {
 public:
    explicit PinnedBuffer(std::int64_t bytes, unsigned flags = cudaHostAllocDefault);
    PinnedBuffer(PinnedBuffer&& other) noexcept : data_(std::exchange(other.data_, nullptr)) {}
    PinnedBuffer& operator=(PinnedBuffer&&) = delete;
    ~PinnedBuffer() { cudaFreeHost(data_); }
    template <class Element = void>
    Element* as() const {
        return static_cast<Element*>(data_);
    }

 private:
    void* data_ = nullptr;
};

/// Anonymous private pages, as malloc gives out for large blocks: zero until touched.
class MappedPages {
 public:
    MappedPages() = default;
    explicit MappedPages(std::int64_t bytes);
    MappedPages(MappedPages&& other) noexcept
        : data_(std::exchange(other.data_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}
    MappedPages& operator=(MappedPages&& other) noexcept {
        std::swap(data_, other.data_);
        std::swap(bytes_, other.bytes_);
        return *this;
    }
    ~MappedPages();
    void* get() const { return data_; }

 private:
    void* data_ = nullptr;
    std::size_t bytes_ = 0;
};

class StreamOwner {
 public:
    StreamOwner();
    StreamOwner(StreamOwner&& other) noexcept : stream_(std::exchange(other.stream_, nullptr)) {}
    StreamOwner& operator=(StreamOwner&&) = delete;
    ~StreamOwner();
    cudaStream_t get() const { return stream_; }
    void synchronize() const;

 private:
    cudaStream_t stream_ = nullptr;
};

class EventOwner {
 public:
    EventOwner();
    EventOwner(const EventOwner&) = delete;
    EventOwner& operator=(const EventOwner&) = delete;
    ~EventOwner();
    cudaEvent_t get() const { return event_; }

 private:
    cudaEvent_t event_ = nullptr;
};

/// Both recorded and passed.
double seconds_between(const EventOwner& begin, const EventOwner& end);

}  // namespace headroom
