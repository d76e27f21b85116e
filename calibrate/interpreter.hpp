// SPDX-License-Identifier: Apache-2.0
// Runs the described schedule of one rank on a device. On the way it proves of the schedule what a plan takes for
// granted: that every launch touches live memory of the size it was given, that streams wait for each other wherever
// one needs what another wrote, and that none uses memory again which another may still use under a tensor freed
// before.
#pragma once

#include <map>
#include <span>
#include <vector>

#include "calibrate/arithmetic.hpp"

namespace headroom {

/// What a schedule is run on.
class ComputeDevice : public virtual Arithmetic {
 public:
    /// On the device, memory of `stream`: what is freed there may be had again by its next tensor.
    virtual std::byte* allocate(const char* name, std::int64_t bytes, Place place, Stream stream) = 0;
    virtual void release(std::byte* address, Place place, Stream stream) = 0;
    virtual void record(Stream stream, SyncId sync) = 0;
    virtual void wait(Stream stream, SyncId sync) = 0;
    virtual void host_wait(Stream stream) = 0;
    /// Narrow elements from and to the host; waits for everything enqueued.
    virtual void upload(std::byte* to, std::span<const float> values) = 0;
    virtual void download(std::span<float> values, const std::byte* from) = 0;
    /// The same as they are: fp32 and integers.
    virtual void upload_bytes(std::byte* to, std::span<const std::byte> bytes) = 0;
    virtual void download_bytes(std::span<std::byte> bytes, const std::byte* from) = 0;
    /// Sum of the losses of all rows since the last call, without their weight; waits for everything enqueued.
    virtual double take_loss() = 0;
};

/// One part of a tensor that a computation reads or writes.
struct Access {
    View view;
    std::int64_t bytes;
    bool writes, reads;
};

/// Every part that `computation` touches. `shape` is that of the launch, of attention only; `element` the bytes of a
/// narrow element; `ranks` the size of the sharding group.
std::vector<Access> accesses(const Computation& computation, const Attention& shape, std::int64_t element, int ranks);

class Interpreter {
 public:
    /// The schedule must outlive it. `element` bytes of a narrow element, `ranks` that share the parameters.
    Interpreter(const Schedule& schedule, std::int64_t element, int ranks, ComputeDevice& device);
    ~Interpreter();
    Interpreter(const Interpreter&) = delete;
    Interpreter& operator=(const Interpreter&) = delete;

    /// Runs one segment. Throws Error, naming the launch, where the schedule is wrong.
    void run(const Segment& segment);
    /// Of a live device tensor; throws Error otherwise.
    std::byte* address(TensorId tensor) const;
    std::int64_t bytes(TensorId tensor) const;
    std::int64_t live_bytes() const { return live_bytes_; }  ///< on the device
    std::int64_t peak_bytes() const { return peak_bytes_; }

 private:
    /// How many launches of each stream (the host is the last one) have happened before.
    using Clock = std::array<std::uint64_t, stream_count + 1>;
    struct Use {
        std::int64_t begin = 0, end = 0;
        std::size_t stream = 0;
        std::uint64_t time = 0;
        bool writes = false;
        const char* launch = "";
    };
    /// The last uses, by each stream, of tensors that were freed.
    using Freed = std::array<Use, stream_count + 1>;
    struct Tensor {
        std::byte* address;
        std::int64_t bytes;
        Place place;
        Stream stream;
        const char* name;
        Freed before;  ///< of whatever its memory held, when it was allocated
        std::vector<Use> uses;
    };

    void allocate(const Event& event);
    void release(TensorId id);
    void launch(std::uint32_t index);
    void compute(const Event& event, const Computation& computation);
    void touch(const Event& event, const Access& access);
    void touch_again(const Event& event, const Tensor& touched) const;
    Freed& pool(const Tensor& tensor);
    void give_back(const Tensor& tensor);
    Tensor& tensor(TensorId id, const char* launch);
    std::byte* resolve(const View& view) const;

    const Schedule& schedule_;
    std::int64_t element_;
    int ranks_;  ///< of the sharding group
    ComputeDevice& device_;
    std::map<TensorId, std::vector<Tensor>> tensors_;  ///< the youngest last
    std::array<Clock, stream_count + 1> clocks_{};
    std::map<SyncId, Clock> recorded_;
    std::array<Freed, stream_count + 1> freed_{};  ///< by the stream whose memory it was; the host's is the last
    std::int64_t live_bytes_ = 0, peak_bytes_ = 0;
};

}  // namespace headroom
