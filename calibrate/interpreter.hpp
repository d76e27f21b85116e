// SPDX-License-Identifier: Apache-2.0
// Runs the described schedule of one rank on a device. On the way it proves of the schedule what a plan takes for
// granted: that every launch touches live memory of the size it was given, that nothing is freed while another stream
// may still use it, and that streams wait for each other wherever one needs what another wrote.
#pragma once

#include <array>
#include <cstddef>
#include <map>
#include <span>
#include <vector>

#include "models/schedule.hpp"

namespace headroom {

/// Where a computation's views lie, in the order in which its structure declares them.
using Addresses = std::array<std::byte*, 11>;

struct ByteMove {
    std::byte *from, *to;
    std::int64_t bytes;
};

/// What a schedule is run on. Everything is enqueued on a stream and may be done later.
class ComputeDevice {
 public:
    virtual ~ComputeDevice() = default;
    virtual std::byte* allocate(const char* name, std::int64_t bytes, Place place) = 0;
    virtual void release(std::byte* address, Place place) = 0;
    virtual void record(Stream stream, SyncId sync) = 0;
    virtual void wait(Stream stream, SyncId sync) = 0;
    virtual void host_wait(Stream stream) = 0;
    /// Narrow elements from and to the host; waits for everything enqueued.
    virtual void upload(std::byte* to, std::span<const float> values) = 0;
    virtual void download(std::span<float> values, const std::byte* from) = 0;

    virtual void product(Stream stream, const Product& what, const Addresses& at) = 0;
    /// By the positions the device was made with, of the rank's rows, where `what` gives none.
    virtual void rotary(Stream stream, const Rotary& what, std::byte* data, int head_dim) = 0;
    virtual void attention(Stream stream, const Attention& shape, const Addresses& at) = 0;
    virtual void convert(Stream stream, const Convert& what, std::byte* from, std::byte* to) = 0;
    virtual void add(Stream stream, const AddTo& what, std::byte* sum, std::byte* term) = 0;
    virtual void merge(Stream stream, const Merge& what, const Addresses& at, int head_dim) = 0;
    virtual void slice(Stream stream, const SliceExponent& what, std::byte* from, std::byte* to) = 0;
    virtual void transfer(Stream stream, std::span<const ByteMove> moves) = 0;
    virtual void exchange(Stream stream, const ByteMove& move) = 0;
    virtual void pass_on(Stream stream, std::span<const ByteMove> moves) = 0;
};

/// One part of a tensor that a computation reads or writes.
struct Access {
    View view;
    std::int64_t bytes;
    bool writes, reads;
};

/// Every part that `computation` touches. `shape` is that of the launch, of attention only; `element` the bytes of a
/// narrow element.
std::vector<Access> accesses(const Computation& computation, const Attention& shape, std::int64_t element);

class Interpreter {
 public:
    /// The schedule must outlive it.
    Interpreter(const Schedule& schedule, std::int64_t element, int head_dim, ComputeDevice& device);
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
        std::int64_t begin, end;
        std::size_t stream;
        std::uint64_t time;
        bool writes;
        const char* launch;
    };
    struct Tensor {
        std::byte* address;
        std::int64_t bytes;
        Place place;
        const char* name;
        std::vector<Use> uses;
    };

    void allocate(const Event& event);
    void release(TensorId id);
    void launch(std::uint32_t index);
    void compute(const Event& event, const Computation& computation);
    void touch(const Event& event, const Access& access);
    Tensor& tensor(TensorId id, const char* launch);
    std::byte* resolve(const View& view) const;

    const Schedule& schedule_;
    std::int64_t element_;
    int head_dim_;
    ComputeDevice& device_;
    std::map<TensorId, std::vector<Tensor>> tensors_;  ///< the youngest last
    std::array<Clock, stream_count + 1> clocks_{};
    std::map<SyncId, Clock> recorded_;
    std::int64_t live_bytes_ = 0, peak_bytes_ = 0;
};

}  // namespace headroom
