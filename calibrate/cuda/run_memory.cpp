// SPDX-License-Identifier: Apache-2.0
#include "calibrate/cuda/run_memory.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "calibrate/cuda/errors.hpp"
#include "calibrate/runner.hpp"
#include "models/error.hpp"

namespace headroom {
namespace {

std::int64_t free_device_bytes() {
    std::size_t free = 0, total = 0;
    return cudaMemGetInfo(&free, &total) == cudaSuccess ? static_cast<std::int64_t>(free) : -1;
}

}  // namespace

DevicePool::DevicePool(int gpu, int gpus) {
    cudaMemPoolProps properties{};
    properties.allocType = cudaMemAllocationTypePinned;
    properties.location.type = cudaMemLocationTypeDevice;
    properties.location.id = gpu;
    check_cuda(cudaMemPoolCreate(&pool_, &properties), "cudaMemPoolCreate");
    std::uint64_t keep = ~std::uint64_t{0};
    check_cuda(cudaMemPoolSetAttribute(pool_, cudaMemPoolAttrReleaseThreshold, &keep), "cudaMemPoolSetAttribute");
    int no = 0;
    for (const cudaMemPoolAttr attribute :
         {cudaMemPoolReuseAllowOpportunistic, cudaMemPoolReuseAllowInternalDependencies}) {
        check_cuda(cudaMemPoolSetAttribute(pool_, attribute, &no), "cudaMemPoolSetAttribute");
    }
    for (int peer = 0; peer < gpus; ++peer) {
        int reaches = 0;
        if (peer == gpu) continue;
        check_cuda(cudaDeviceCanAccessPeer(&reaches, peer, gpu), "cudaDeviceCanAccessPeer");
        if (reaches == 0) continue;
        cudaMemAccessDesc access{};
        access.location.type = cudaMemLocationTypeDevice;
        access.location.id = peer;
        access.flags = cudaMemAccessFlagsProtReadWrite;
        check_cuda(cudaMemPoolSetAccess(pool_, &access, 1), "cudaMemPoolSetAccess");
    }
}

DevicePool::~DevicePool() {
    if (pool_ != nullptr) cudaMemPoolDestroy(pool_);
}

void* DevicePool::allocate(std::int64_t bytes, cudaStream_t stream) {
    void* address = nullptr;
    const cudaError_t status = cudaMallocFromPoolAsync(&address, static_cast<std::size_t>(bytes), pool_, stream);
    if (status == cudaErrorMemoryAllocation) {
        cudaGetLastError();
        throw MemoryFull(free_device_bytes());
    }
    check_cuda(status, fmt::format("cudaMallocFromPoolAsync of {} bytes", bytes));
    return address;
}

void DevicePool::release(void* address, cudaStream_t stream) noexcept { cudaFreeAsync(address, stream); }

void DevicePool::trim() noexcept { cudaMemPoolTrimTo(pool_, 0); }

std::int64_t DevicePool::read(cudaMemPoolAttr attribute) const {
    std::uint64_t value = 0;
    check_cuda(cudaMemPoolGetAttribute(pool_, attribute, &value), "cudaMemPoolGetAttribute");
    return static_cast<std::int64_t>(value);
}

void DevicePool::reset_marks() {
    std::uint64_t zero = 0;
    check_cuda(cudaMemPoolSetAttribute(pool_, cudaMemPoolAttrUsedMemHigh, &zero), "cudaMemPoolSetAttribute");
    check_cuda(cudaMemPoolSetAttribute(pool_, cudaMemPoolAttrReservedMemHigh, &zero), "cudaMemPoolSetAttribute");
}

HostBuffers::Pinned& HostBuffers::pinned(std::int64_t bytes) {
    Pinned* best = nullptr;
    for (Pinned& one : pinned_) {
        if (one.used || one.bytes < bytes || one.bytes > 2 * bytes) continue;
        if (best == nullptr || one.bytes < best->bytes) best = &one;
    }
    if (best == nullptr) {
        const auto make = [&] { return &pinned_.emplace_back(Pinned{PinnedBuffer(bytes), bytes, false}); };
        try {
            best = make();
        } catch (const Error&) {
            std::erase_if(pinned_, [&](const Pinned& one) {
                if (!one.used) pinned_bytes_ -= one.bytes;
                return !one.used;
            });
            try {
                best = make();
            } catch (const Error&) {
                throw MemoryFull(-1);
            }
        }
        pinned_bytes_ += bytes;
    }
    best->used = true;
    return *best;
}

void* HostBuffers::allocate(const LiveTensor& wanted) {
    if (wanted.place == Place::host_pinned) return pinned(wanted.bytes).buffer.as();
    try {
        return pageable_.emplace_back(wanted.bytes).get();
    } catch (const Error&) {
        throw MemoryFull(-1);
    }
}

void HostBuffers::release(const LiveTensor& tensor) noexcept {
    for (Pinned& one : pinned_) {
        if (one.buffer.as() == tensor.address) one.used = false;
    }
    pageable_.remove_if([&](const MappedPages& one) { return one.get() == tensor.address; });
}

}  // namespace headroom
