// SPDX-License-Identifier: Apache-2.0
#include "calibrate/cuda/copy_overlap.hpp"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <thread>

#include "calibrate/cuda/attention_probe.hpp"
#include "calibrate/cuda/errors.hpp"
#include "calibrate/cuda/timer.hpp"

namespace headroom {
namespace {

/// A stream that is held until all work is enqueued, and the events around that work.
struct Side {
    StreamOwner stream;
    StreamHold hold;
    EventOwner begin, end;
    template <class Enqueue>
    void enqueue(Enqueue&& work) {
        hold.close(stream.get());
        check_cuda(cudaEventRecord(begin.get(), stream.get()), "cudaEventRecord");
        work(stream.get());
        check_cuda(cudaEventRecord(end.get(), stream.get()), "cudaEventRecord");
    }
};

class CopyOverlap : public PreparedProbe {
 public:
    explicit CopyOverlap(const CopyOverlapProbe& probe)
        : probe_(probe),
          work_(make_attention_work(compute_.stream.get(), probe.shape)),
          device_(probe.bytes),
          host_(probe.bytes) {
        std::memset(host_.as(), 1, static_cast<std::size_t>(probe.bytes));
        work_->execute();  // loads its kernels, which would wait for a held stream
        copy(transfer_.stream.get());
        compute_.stream.synchronize();
        transfer_.stream.synchronize();
    }

    Check verify() override { return work_->verify(); }

    double run() override {
        attention_.push_back(time(true, false));
        copy_.push_back(time(false, true));
        return time(true, true);
    }

    Json notes() override {
        return {{"attention_alone_seconds", summarise(attention_).median},
                {"copy_alone_seconds", summarise(copy_).median},
                {"attention_beside_seconds", summarise(attention_beside_).median},
                {"copy_beside_seconds", summarise(copy_beside_).median}};
    }

 private:
    void copy(cudaStream_t stream) {
        const auto bytes = static_cast<std::size_t>(probe_.bytes);
        check_cuda(probe_.to_host ? cudaMemcpyAsync(host_.as(), device_.as(), bytes, cudaMemcpyDeviceToHost, stream)
                                  : cudaMemcpyAsync(device_.as(), host_.as(), bytes, cudaMemcpyHostToDevice, stream),
                   "cudaMemcpyAsync");
    }

    double time(bool attention, bool copying) {
        if (copying) transfer_.enqueue([&](cudaStream_t stream) { copy(stream); });
        if (attention) compute_.enqueue([&](cudaStream_t) { work_->execute(); });
        if (copying) transfer_.hold.open();
        if (attention && copying) std::this_thread::sleep_for(std::chrono::microseconds(50));
        if (attention) compute_.hold.open();
        transfer_.stream.synchronize();
        compute_.stream.synchronize();
        if (transfer_.hold.timed_out() || compute_.hold.timed_out()) {
            throw Error("the host took more than 2 s to enqueue the work", "", "is the machine overloaded?",
                        ExitCode::failure);
        }
        if (!copying) return seconds_between(compute_.begin, compute_.end);
        if (!attention) return seconds_between(transfer_.begin, transfer_.end);
        attention_beside_.push_back(seconds_between(compute_.begin, compute_.end));
        copy_beside_.push_back(seconds_between(transfer_.begin, transfer_.end));
        return std::max(seconds_between(transfer_.begin, compute_.end),
                        seconds_between(transfer_.begin, transfer_.end));
    }

    CopyOverlapProbe probe_;
    Side compute_, transfer_;
    std::unique_ptr<AttentionWork> work_;
    DeviceBuffer device_;
    PinnedBuffer host_;
    std::vector<double> attention_, copy_, attention_beside_, copy_beside_;
};

}  // namespace

std::unique_ptr<PreparedProbe> prepare_copy_overlap(const CopyOverlapProbe& probe) {
    return std::make_unique<CopyOverlap>(probe);
}

}  // namespace headroom
