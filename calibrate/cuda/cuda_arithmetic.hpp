// SPDX-License-Identifier: Apache-2.0
// Every computation of a described schedule on one GPU: cuDNN attention, cuBLASLt products, own kernels, and the other
// ranks through a transport. Narrow elements are bf16, wide ones fp32.
#pragma once

#include <array>
#include <map>
#include <memory>

#include "calibrate/arithmetic.hpp"
#include "calibrate/cuda/attention_calls.hpp"
#include "calibrate/cuda/memory.hpp"
#include "calibrate/cuda/product.hpp"
#include "calibrate/cuda/transport.hpp"

namespace headroom {

/// On the current GPU, from one thread. Attention, products, norm_backward and embeddings have one scratch each, so
/// they belong on one stream: attention on the compute stream, the others on any one.
class CudaArithmetic : public virtual Arithmetic {
 public:
    CudaArithmetic();

    /// Before anything that concerns other ranks.
    void connect(std::unique_ptr<RankTransport> transport) { transport_ = std::move(transport); }
    /// Makes every plan and scratch that the descriptions need, so that no launch does. Steps of Adam count from one.
    void prepare(const Schedule& schedule);
    /// Of gemm_workspace_bytes, for products from here on; null for one of its own.
    void use_product_workspace(void* workspace) { products_.use_workspace(workspace); }

    cudaStream_t stream(Stream which) const { return streams_[static_cast<std::size_t>(which)].get(); }
    /// Device memory beside the schedule's tensors.
    std::int64_t scratch_bytes() const;
    /// What cuDNN takes beside the operands of one call, the largest of them.
    std::int64_t attention_bytes(const Attention& shape) { return attention_.needed_bytes(shape); }
    /// Sum of the losses since the last call. Everything enqueued must be done.
    double take_losses();

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
    void compute(Stream stream, const Embedding& what, const Addresses& at) override;
    void compute(Stream stream, const EmbeddingBackward& what, const Addresses& at) override;
    void compute(Stream stream, const CrossEntropy& what, const Addresses& at) override;
    void compute(Stream stream, const GatherShards& what, const Addresses& at) override;
    void compute(Stream stream, const ReduceScatter& what, const Addresses& at) override;
    void compute(Stream stream, const CopyIn& what, const Addresses& at) override;
    void compute(Stream stream, const Adam& what, const Addresses& at) override;

 protected:
    RankTransport& transport() { return *transport_; }

 private:
    std::array<StreamOwner, stream_count> streams_;
    std::unique_ptr<RankTransport> transport_;
    AttentionCalls attention_;
    Products products_;
    GrowingBuffer column_sums_;                   ///< of norm_backward
    GrowingBuffer row_lists_;                     ///< of embedding_backward
    DeviceBuffer losses_;                         ///< one double
    std::map<const std::byte*, int> adam_steps_;  ///< by parameter
};

}  // namespace headroom
