// SPDX-License-Identifier: Apache-2.0
#include "calibrate/cuda/check_device.hpp"

#include <bit>
#include <vector>

#include "calibrate/cuda/errors.hpp"

namespace headroom {
namespace {

std::size_t size(std::int64_t bytes) { return static_cast<std::size_t>(bytes); }

/// To nearest even; the values given are exact.
std::uint16_t to_bf16(float value) {
    const auto bits = std::bit_cast<std::uint32_t>(value);
    return static_cast<std::uint16_t>((bits + 0x7fff + ((bits >> 16) & 1)) >> 16);
}

}  // namespace

CheckDevice::~CheckDevice() {
    for (std::size_t i = 0; i < stream_count; ++i) cudaStreamSynchronize(stream(static_cast<Stream>(i)));
}

void CheckDevice::settle() {
    for (std::size_t i = 0; i < stream_count; ++i) transport().wait(stream(static_cast<Stream>(i)));
}

std::byte* CheckDevice::allocate(const char*, std::int64_t bytes, Place place, Stream of) {
    void* address = nullptr;
    if (place == Place::device) {
        check_cuda(cudaMallocAsync(&address, size(bytes), stream(of)), "cudaMallocAsync");
        // Not a number until written: what nobody wrote does not pass for a result.
        check_cuda(cudaMemsetAsync(address, 0xff, size(bytes), stream(of)), "cudaMemsetAsync");
    } else {
        check_cuda(cudaMallocHost(&address, size(bytes)), "cudaMallocHost");
    }
    return static_cast<std::byte*>(address);
}

void CheckDevice::release(std::byte* address, Place place, Stream of) {
    if (place == Place::device) {
        cudaFreeAsync(address, stream(of));
    } else {
        settle();  // any stream may still copy
        cudaFreeHost(address);
    }
}

void CheckDevice::record(Stream which, SyncId sync) {
    check_cuda(cudaEventRecord(syncs_[sync].get(), stream(which)), "cudaEventRecord");
}

void CheckDevice::wait(Stream which, SyncId sync) {
    check_cuda(cudaStreamWaitEvent(stream(which), syncs_.at(sync).get(), 0), "cudaStreamWaitEvent");
}

void CheckDevice::upload(std::byte* to, std::span<const float> values) {
    std::vector<std::uint16_t> raw;
    raw.reserve(values.size());
    for (const float value : values) raw.push_back(to_bf16(value));
    upload_bytes(to, std::as_bytes(std::span(raw)));
}

void CheckDevice::download(std::span<float> values, const std::byte* from) {
    std::vector<std::uint16_t> raw(values.size());
    download_bytes(std::as_writable_bytes(std::span(raw)), from);
    for (std::size_t i = 0; i < raw.size(); ++i) {
        values[i] = std::bit_cast<float>(static_cast<std::uint32_t>(raw[i]) << 16);
    }
}

void CheckDevice::upload_bytes(std::byte* to, std::span<const std::byte> bytes) {
    settle();
    check_cuda(cudaMemcpy(to, bytes.data(), bytes.size(), cudaMemcpyHostToDevice), "cudaMemcpy");
}

void CheckDevice::download_bytes(std::span<std::byte> bytes, const std::byte* from) {
    settle();
    check_cuda(cudaMemcpy(bytes.data(), from, bytes.size(), cudaMemcpyDeviceToHost), "cudaMemcpy");
}

double CheckDevice::take_loss() {
    settle();
    return take_losses();
}

}  // namespace headroom
