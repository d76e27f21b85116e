// SPDX-License-Identifier: Apache-2.0
// Runs schedules in plain arithmetic on the host: narrow elements are floats, wide ones doubles, ranks are threads.
// Slow and exact; what it computes does not depend on streams, which are in program order here.
#pragma once

#include <memory>
#include <vector>

#include "calibrate/interpreter.hpp"
#include "calibrate/meeting.hpp"

namespace headroom {

/// The ranks of one check: Ulysses groups of neighbours, rings across them.
class HostRanks {
 public:
    HostRanks(int ulysses, int ring);
    int size() const { return ulysses_ * ring_; }
    void give_up();

 private:
    friend class HostDevice;
    int ulysses_, ring_;
    std::vector<std::unique_ptr<Meeting>> ulysses_meetings_, ring_meetings_;
    std::vector<std::vector<ByteMove>> offered_;  ///< what each rank sends now
};

class HostDevice : public ComputeDevice {
 public:
    /// `positions` of the rank's rows.
    HostDevice(HostRanks& ranks, int rank, std::vector<std::int64_t> positions);

    std::byte* allocate(const char* name, std::int64_t bytes, Place place) override;
    void release(std::byte* address, Place place) override;
    void record(Stream, SyncId) override {}
    void wait(Stream, SyncId) override {}
    void host_wait(Stream) override {}
    void upload(std::byte* to, std::span<const float> values) override;
    void download(std::span<float> values, const std::byte* from) override;

    void product(Stream stream, const Product& what, const Addresses& at) override;
    void rotary(Stream stream, const Rotary& what, std::byte* data, int head_dim) override;
    void attention(Stream stream, const Attention& shape, const Addresses& at) override;
    void convert(Stream stream, const Convert& what, std::byte* from, std::byte* to) override;
    void add(Stream stream, const AddTo& what, std::byte* sum, std::byte* term) override;
    void merge(Stream stream, const Merge& what, const Addresses& at, int head_dim) override;
    void slice(Stream stream, const SliceExponent& what, std::byte* from, std::byte* to) override;
    void transfer(Stream stream, std::span<const ByteMove> moves) override;
    void exchange(Stream stream, const ByteMove& move) override;
    void pass_on(Stream stream, std::span<const ByteMove> moves) override;

 private:
    HostRanks& ranks_;
    int rank_;
    std::vector<std::int64_t> positions_;
};

/// Angle of pair `pair` of a head at `position`: position * 10000^(-2 pair / head_dim).
double rotary_angle(std::int64_t position, int pair, int head_dim);

}  // namespace headroom
