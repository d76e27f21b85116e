// SPDX-License-Identifier: Apache-2.0
#include "calibrate/cuda/errors.hpp"
#include "calibrate/cuda/timer.hpp"
#include "models/error.hpp"

namespace headroom {
namespace {

constexpr std::uint64_t hold_limit_nanoseconds = 2'000'000'000;

__device__ std::uint64_t global_nanoseconds() {
    std::uint64_t time = 0;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(time));
    return time;
}

__global__ void hold_kernel(volatile int* flags, std::uint64_t limit) {
    const std::uint64_t begin = global_nanoseconds();
    while (flags[0] == 0) {
        if (global_nanoseconds() - begin > limit) {
            flags[1] = 1;
            return;
        }
    }
}

__global__ void stamp_kernel(Stamp* stamp, std::uint64_t spin) {
    const std::uint64_t begin = global_nanoseconds();
    std::uint64_t now = begin;
    while (now - begin < spin) now = global_nanoseconds();
    stamp->begin = begin;
    stamp->end = global_nanoseconds();
}

__global__ void empty_kernel() {}

}  // namespace

StreamHold::StreamHold() : flags_(2 * sizeof(int), cudaHostAllocMapped) {}

void StreamHold::close(cudaStream_t stream) {
    volatile int* flags = flags_.as<int>();
    flags[0] = 0;
    flags[1] = 0;
    hold_kernel<<<1, 1, 0, stream>>>(flags_.as<int>(), hold_limit_nanoseconds);
    check_cuda(cudaGetLastError(), "launch of the hold kernel");
}

void StreamHold::open() {
    volatile int* flags = flags_.as<int>();
    flags[0] = 1;
}

bool StreamHold::timed_out() const {
    const volatile int* flags = flags_.as<int>();
    return flags[1] != 0;
}

double BatchTimer::time(cudaStream_t stream, int runs, const std::function<void(cudaStream_t)>& work) {
    hold_.close(stream);
    try {
        check_cuda(cudaEventRecord(begin_.get(), stream), "cudaEventRecord");
        for (int run = 0; run < runs; ++run) work(stream);
        check_cuda(cudaEventRecord(end_.get(), stream), "cudaEventRecord");
    } catch (...) {
        hold_.open();
        throw;
    }
    hold_.open();
    check_cuda(cudaEventSynchronize(end_.get()), "cudaEventSynchronize");
    if (hold_.timed_out()) {
        throw Error("the host took more than 2 s to enqueue one batch", "", "is the machine overloaded?",
                    ExitCode::failure);
    }
    float milliseconds = 0;
    check_cuda(cudaEventElapsedTime(&milliseconds, begin_.get(), end_.get()), "cudaEventElapsedTime");
    return milliseconds * 1e-3 / runs;
}

void launch_stamp(cudaStream_t stream, Stamp* stamp, std::uint64_t spin_nanoseconds) {
    stamp_kernel<<<1, 1, 0, stream>>>(stamp, spin_nanoseconds);
    check_cuda(cudaGetLastError(), "launch of the stamp kernel");
}

void launch_empty(cudaStream_t stream, int blocks) {
    empty_kernel<<<blocks, 128, 0, stream>>>();
    check_cuda(cudaGetLastError(), "launch of the empty kernel");
}

}  // namespace headroom
