// SPDX-License-Identifier: Apache-2.0
// Runs schedules in plain arithmetic on the host: narrow elements are floats, wide ones doubles, ranks are threads.
// Slow and exact; what it computes does not depend on streams, which are in program order here. Sums are taken in
// double precision and in the order of rows and ranks, so a run gives the same bits every time.
#pragma once

#include <map>
#include <memory>
#include <vector>

#include "calibrate/interpreter.hpp"
#include "calibrate/meeting.hpp"

namespace headroom {

/// The ranks of one check: Ulysses groups of neighbours, rings across them, parameters sharded over all.
class HostRanks {
 public:
    HostRanks(int ulysses, int ring);
    int size() const { return ulysses_ * ring_; }
    void give_up();

 private:
    friend class HostDevice;
    int ulysses_, ring_;
    std::vector<std::unique_ptr<Meeting>> ulysses_meetings_, ring_meetings_;
    Meeting all_;
    std::vector<Addresses> offered_;  ///< by rank, what each sends now
};

class HostDevice : public ComputeDevice {
 public:
    HostDevice(HostRanks& ranks, int rank) : ranks_(ranks), rank_(rank) {}

    std::byte* allocate(const char* name, std::int64_t bytes, Place place, Stream stream) override;
    void release(std::byte* address, Place place, Stream stream) override;
    void record(Stream, SyncId) override {}
    void wait(Stream, SyncId) override {}
    void host_wait(Stream) override {}
    void upload(std::byte* to, std::span<const float> values) override;
    void download(std::span<float> values, const std::byte* from) override;
    void upload_bytes(std::byte* to, std::span<const std::byte> bytes) override;
    void download_bytes(std::span<std::byte> bytes, const std::byte* from) override;
    double take_loss() override;

    void compute(Stream stream, const Product& what, const Addresses& at) override;
    void compute(Stream stream, const Rotary& what, const Addresses& at) override;
    void compute(Stream stream, const AttentionCall& what, const Attention& shape, const Addresses& at) override;
    void compute(Stream stream, const Exchange& what, const Addresses& at) override;
    void compute(Stream stream, const PassOn& what, const Addresses& at) override;
    void compute(Stream stream, const Transfer& what, const Addresses& at) override;
    void compute(Stream stream, const Convert& what, const Addresses& at) override;
    void compute(Stream stream, const AddTo& what, const Addresses& at) override;
    void compute(Stream stream, const Merge& what, const Addresses& at) override;
    void compute(Stream stream, const SliceExponent& what, const Addresses& at) override;
    void compute(Stream stream, const Norm& what, const Addresses& at) override;
    void compute(Stream stream, const NormBackward& what, const Addresses& at) override;
    void compute(Stream stream, const Gate& what, const Addresses& at) override;
    void compute(Stream stream, const GateBackward& what, const Addresses& at) override;
    void compute(Stream stream, const Sum& what, const Addresses& at) override;
    /// Throws Error where a token is not in the vocabulary.
    void compute(Stream stream, const Embedding& what, const Addresses& at) override;
    void compute(Stream stream, const EmbeddingBackward& what, const Addresses& at) override;
    /// Throws Error where a label is not in the vocabulary.
    void compute(Stream stream, const CrossEntropy& what, const Addresses& at) override;
    void compute(Stream stream, const GatherShards& what, const Addresses& at) override;
    void compute(Stream stream, const ReduceScatter& what, const Addresses& at) override;
    void compute(Stream stream, const CopyIn& what, const Addresses& at) override;
    void compute(Stream stream, const Adam& what, const Addresses& at) override;

 private:
    HostRanks& ranks_;
    int rank_;
    double loss_ = 0;
    std::map<const std::byte*, int> steps_;  ///< of Adam, by where the parameters lie
};

/// Angle of pair `pair` of a head at `position`: position * 10000^(-2 pair / head_dim).
double rotary_angle(std::int64_t position, int pair, int head_dim);
/// (cosine, sine) of every pair of a head at each of `positions`: [positions][head_dim / 2][2].
std::vector<float> rotary_table(const std::vector<std::int64_t>& positions, int head_dim);

}  // namespace headroom
