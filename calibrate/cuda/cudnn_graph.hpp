// SPDX-License-Identifier: Apache-2.0
// cuDNN's backend graph API: descriptors, operations, the choice of an engine, an execution plan.
#pragma once

#include <cudnn.h>

#include <array>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace headroom {

void check_cudnn(cudnnStatus_t status, const std::string& call);

/// Owns one backend descriptor.
class Descriptor {
 public:
    Descriptor() = default;
    explicit Descriptor(cudnnBackendDescriptorType_t type);
    Descriptor(Descriptor&& other) noexcept : handle_(std::exchange(other.handle_, nullptr)) {}
    Descriptor& operator=(Descriptor&& other) noexcept {
        std::swap(handle_, other.handle_);
        return *this;
    }
    ~Descriptor();
    cudnnBackendDescriptor_t get() const { return handle_; }

    void set(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, std::int64_t count,
             const void* values);
    void set(cudnnBackendAttributeName_t name, const Descriptor& value);
    void finalize(const char* what);

 private:
    cudnnBackendDescriptor_t handle_ = nullptr;
};

using Dimensions = std::array<std::int64_t, 4>;

/// Where a graph finds the properties of the GPU: a handle, or a description of one that is not there.
struct GraphTarget {
    cudnnHandle_t handle = nullptr;
    const Descriptor* device = nullptr;
};
/// From the JSON cuDNN writes of a GPU: engines are chosen for it without one.
Descriptor device_from_json(const std::string& json);

/// Operations in the order they are added: producers before consumers.
class Graph {
 public:
    using Tensor = std::size_t;  ///< index; its unique id is one more

    Tensor real(const Dimensions& dimensions, const Dimensions& strides, cudnnDataType_t type);
    Tensor intermediate(const Dimensions& dimensions, const Dimensions& strides, cudnnDataType_t type);
    Tensor scalar(cudnnDataType_t type);  ///< by value, from host memory
    static std::int64_t id(Tensor tensor) { return static_cast<std::int64_t>(tensor) + 1; }

    void matmul(Tensor a, Tensor b, Tensor c);
    void unary(cudnnPointwiseMode_t mode, Tensor x, Tensor y);
    void binary(cudnnPointwiseMode_t mode, Tensor x, Tensor b, Tensor y);
    void compare(cudnnPointwiseMode_t mode, Tensor x, Tensor b, Tensor y);
    void index(std::int64_t axis, Tensor x, Tensor y);
    void select(Tensor condition, Tensor x, Tensor otherwise, Tensor y);  ///< condition ? x : otherwise
    void reduce(cudnnReduceTensorOp_t operation, Tensor x, Tensor y);
    void reshape(Tensor x, Tensor y);

    /// What the pointwise operations do, in their order; for tests of what cuDNN takes without a word and does slowly.
    struct Step {
        cudnnPointwiseMode_t mode;
        Tensor x, b, y;     ///< b: 0 where there is none
        std::int64_t axis;  ///< of an index; -1
    };
    const std::vector<Step>& steps() const { return steps_; }

    struct Engines {
        std::vector<Descriptor> configs;  ///< best first
        std::int64_t shared_memory(std::size_t i) const;
        std::int64_t workspace(std::size_t i) const;
    };
    /// Throws Error when no engine takes the graph.
    Engines engines(const GraphTarget& target);

 private:
    Tensor tensor(const Dimensions& dimensions, const Dimensions& strides, cudnnDataType_t type, bool is_virtual,
                  bool by_value);
    void pointwise(cudnnPointwiseMode_t mode, cudnnDataType_t precision, Tensor x, const Tensor* b, const Tensor* t,
                   Tensor y, std::int64_t axis);

    std::vector<Descriptor> tensors_, parts_, operations_;
    std::vector<Step> steps_;
    Descriptor graph_;
};

class ExecutionPlan {
 public:
    ExecutionPlan() = default;
    ExecutionPlan(cudnnHandle_t handle, const Descriptor& config);
    std::int64_t workspace() const;
    /// The pack is kept; execute() may be called any number of times.
    void bind(const std::vector<std::pair<std::int64_t, void*>>& pointers, void* workspace);
    void execute(cudnnHandle_t handle) const;

 private:
    Descriptor plan_, pack_;
};

}  // namespace headroom
