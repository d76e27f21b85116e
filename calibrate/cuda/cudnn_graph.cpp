// SPDX-License-Identifier: Apache-2.0
#include "calibrate/cuda/cudnn_graph.hpp"

#include <fmt/format.h>

#include "models/error.hpp"

namespace headroom {

void check_cudnn(cudnnStatus_t status, const std::string& call) {
    if (status == CUDNN_STATUS_SUCCESS) return;
    std::array<char, 512> last{};
    cudnnGetLastErrorString(last.data(), last.size());
    throw Error(fmt::format("{} failed with {} ({}){}{}", call, cudnnGetErrorString(status), static_cast<int>(status),
                            last[0] == '\0' ? "" : ": ", last.data()),
                "", "CUDNN_LOGLEVEL_DBG=2 CUDNN_LOGDEST_DBG=stderr in the environment say more", ExitCode::failure);
}

Descriptor::Descriptor(cudnnBackendDescriptorType_t type) {
    check_cudnn(cudnnBackendCreateDescriptor(type, &handle_),
                fmt::format("cudnnBackendCreateDescriptor of type {}", static_cast<int>(type)));
}

Descriptor::~Descriptor() {
    if (handle_ != nullptr) cudnnBackendDestroyDescriptor(handle_);
}

void Descriptor::set(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, std::int64_t count,
                     const void* values) {
    check_cudnn(cudnnBackendSetAttribute(handle_, name, type, count, values),
                fmt::format("cudnnBackendSetAttribute of {}", static_cast<int>(name)));
}

void Descriptor::set(cudnnBackendAttributeName_t name, const Descriptor& value) {
    cudnnBackendDescriptor_t handle = value.get();
    set(name, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &handle);
}

void Descriptor::finalize(const char* what) {
    check_cudnn(cudnnBackendFinalize(handle_), fmt::format("cudnnBackendFinalize of {}", what));
}

Descriptor device_from_json(const std::string& json) {
    Descriptor device(CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR);
    device.set(CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION, CUDNN_TYPE_CHAR, static_cast<std::int64_t>(json.size() + 1),
               json.c_str());
    device.finalize("the device properties");
    return device;
}

Graph::Tensor Graph::tensor(const Dimensions& dimensions, const Dimensions& strides, cudnnDataType_t type,
                            bool is_virtual, bool by_value) {
    Descriptor result(CUDNN_BACKEND_TENSOR_DESCRIPTOR);
    const std::int64_t unique = id(tensors_.size()), alignment = 16;
    result.set(CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, 1, &unique);
    result.set(CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &type);
    result.set(CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, CUDNN_TYPE_INT64, 1, &alignment);
    result.set(CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, 4, dimensions.data());
    result.set(CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, 4, strides.data());
    result.set(CUDNN_ATTR_TENSOR_IS_VIRTUAL, CUDNN_TYPE_BOOLEAN, 1, &is_virtual);
    if (by_value) result.set(CUDNN_ATTR_TENSOR_IS_BY_VALUE, CUDNN_TYPE_BOOLEAN, 1, &by_value);
    result.finalize("a tensor");
    tensors_.push_back(std::move(result));
    return tensors_.size() - 1;
}

Graph::Tensor Graph::real(const Dimensions& dimensions, const Dimensions& strides, cudnnDataType_t type) {
    return tensor(dimensions, strides, type, false, false);
}
Graph::Tensor Graph::intermediate(const Dimensions& dimensions, const Dimensions& strides, cudnnDataType_t type) {
    return tensor(dimensions, strides, type, true, false);
}
Graph::Tensor Graph::scalar(cudnnDataType_t type) { return tensor({1, 1, 1, 1}, {1, 1, 1, 1}, type, false, true); }

void Graph::matmul(Tensor a, Tensor b, Tensor c) {
    Descriptor kind(CUDNN_BACKEND_MATMUL_DESCRIPTOR);
    const cudnnDataType_t precision = CUDNN_DATA_FLOAT;
    kind.set(CUDNN_ATTR_MATMUL_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &precision);
    kind.finalize("a matmul");
    Descriptor operation(CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR);
    operation.set(CUDNN_ATTR_OPERATION_MATMUL_ADESC, tensors_[a]);
    operation.set(CUDNN_ATTR_OPERATION_MATMUL_BDESC, tensors_[b]);
    operation.set(CUDNN_ATTR_OPERATION_MATMUL_CDESC, tensors_[c]);
    operation.set(CUDNN_ATTR_OPERATION_MATMUL_DESC, kind);
    operation.finalize("a matmul operation");
    parts_.push_back(std::move(kind));
    operations_.push_back(std::move(operation));
}

void Graph::pointwise(cudnnPointwiseMode_t mode, cudnnDataType_t precision, Tensor x, const Tensor* b, const Tensor* t,
                      Tensor y, std::int64_t axis) {
    Descriptor kind(CUDNN_BACKEND_POINTWISE_DESCRIPTOR);
    kind.set(CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, 1, &mode);
    kind.set(CUDNN_ATTR_POINTWISE_MATH_PREC, CUDNN_TYPE_DATA_TYPE, 1, &precision);
    if (axis >= 0) kind.set(CUDNN_ATTR_POINTWISE_AXIS, CUDNN_TYPE_INT64, 1, &axis);
    kind.finalize("a pointwise");
    Descriptor operation(CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR);
    operation.set(CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, kind);
    operation.set(CUDNN_ATTR_OPERATION_POINTWISE_XDESC, tensors_[x]);
    if (b != nullptr) operation.set(CUDNN_ATTR_OPERATION_POINTWISE_BDESC, tensors_[*b]);
    if (t != nullptr) operation.set(CUDNN_ATTR_OPERATION_POINTWISE_TDESC, tensors_[*t]);
    operation.set(CUDNN_ATTR_OPERATION_POINTWISE_YDESC, tensors_[y]);
    operation.finalize("a pointwise operation");
    steps_.push_back({mode, x, b == nullptr ? 0 : *b, y, axis});
    parts_.push_back(std::move(kind));
    operations_.push_back(std::move(operation));
}

void Graph::unary(cudnnPointwiseMode_t mode, Tensor x, Tensor y) {
    pointwise(mode, CUDNN_DATA_FLOAT, x, nullptr, nullptr, y, -1);
}
void Graph::binary(cudnnPointwiseMode_t mode, Tensor x, Tensor b, Tensor y) {
    pointwise(mode, CUDNN_DATA_FLOAT, x, &b, nullptr, y, -1);
}
void Graph::compare(cudnnPointwiseMode_t mode, Tensor x, Tensor b, Tensor y) {
    pointwise(mode, CUDNN_DATA_BOOLEAN, x, &b, nullptr, y, -1);
}
void Graph::index(std::int64_t axis, Tensor x, Tensor y) {
    pointwise(CUDNN_POINTWISE_GEN_INDEX, CUDNN_DATA_FLOAT, x, nullptr, nullptr, y, axis);
}
void Graph::select(Tensor condition, Tensor x, Tensor otherwise, Tensor y) {
    pointwise(CUDNN_POINTWISE_BINARY_SELECT, CUDNN_DATA_FLOAT, x, &otherwise, &condition, y, -1);
}

void Graph::reduce(cudnnReduceTensorOp_t operation, Tensor x, Tensor y) {
    Descriptor kind(CUDNN_BACKEND_REDUCTION_DESCRIPTOR);
    const cudnnDataType_t precision = CUDNN_DATA_FLOAT;
    kind.set(CUDNN_ATTR_REDUCTION_OPERATOR, CUDNN_TYPE_REDUCTION_OPERATOR_TYPE, 1, &operation);
    kind.set(CUDNN_ATTR_REDUCTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &precision);
    kind.finalize("a reduction");
    Descriptor result(CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR);
    result.set(CUDNN_ATTR_OPERATION_REDUCTION_XDESC, tensors_[x]);
    result.set(CUDNN_ATTR_OPERATION_REDUCTION_YDESC, tensors_[y]);
    result.set(CUDNN_ATTR_OPERATION_REDUCTION_DESC, kind);
    result.finalize("a reduction operation");
    parts_.push_back(std::move(kind));
    operations_.push_back(std::move(result));
}

void Graph::reshape(Tensor x, Tensor y) {
    Descriptor operation(CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR);
    operation.set(CUDNN_ATTR_OPERATION_RESHAPE_XDESC, tensors_[x]);
    operation.set(CUDNN_ATTR_OPERATION_RESHAPE_YDESC, tensors_[y]);
    operation.finalize("a reshape operation");
    operations_.push_back(std::move(operation));
}

Graph::Engines Graph::engines(const GraphTarget& target) {
    graph_ = Descriptor(CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
    std::vector<cudnnBackendDescriptor_t> handles;
    for (const Descriptor& operation : operations_) handles.push_back(operation.get());
    if (target.handle != nullptr) {
        graph_.set(CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE, 1, &target.handle);
    }
    graph_.set(CUDNN_ATTR_OPERATIONGRAPH_OPS, CUDNN_TYPE_BACKEND_DESCRIPTOR, static_cast<std::int64_t>(handles.size()),
               handles.data());
    graph_.finalize("the operation graph");

    Descriptor heuristics(CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR);
    const cudnnBackendHeurMode_t mode = CUDNN_HEUR_MODE_A;
    heuristics.set(CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, graph_);
    heuristics.set(CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, 1, &mode);
    if (target.device != nullptr) heuristics.set(CUDNN_ATTR_ENGINEHEUR_DEVICEPROP, *target.device);
    heuristics.finalize("the engine heuristics");
    std::int64_t count = 0;
    check_cudnn(cudnnBackendGetAttribute(heuristics.get(), CUDNN_ATTR_ENGINEHEUR_RESULTS, CUDNN_TYPE_BACKEND_DESCRIPTOR,
                                         0, &count, nullptr),
                "cudnnBackendGetAttribute of ENGINEHEUR_RESULTS");
    Engines engines;
    for (std::int64_t i = 0; i < count; ++i) engines.configs.emplace_back(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR);
    std::vector<cudnnBackendDescriptor_t> results;
    for (const Descriptor& config : engines.configs) results.push_back(config.get());
    std::int64_t received = 0;
    if (count > 0) {
        check_cudnn(cudnnBackendGetAttribute(heuristics.get(), CUDNN_ATTR_ENGINEHEUR_RESULTS,
                                             CUDNN_TYPE_BACKEND_DESCRIPTOR, count, &received, results.data()),
                    "cudnnBackendGetAttribute of ENGINEHEUR_RESULTS");
    }
    engines.configs.resize(static_cast<std::size_t>(received));
    if (engines.configs.empty()) {
        throw Error("cuDNN has no engine for this attention", "",
                    "CUDNN_LOGLEVEL_DBG=2 CUDNN_LOGDEST_DBG=stderr in the environment say why", ExitCode::failure);
    }
    return engines;
}

namespace {

std::int64_t number_of(const Descriptor& descriptor, cudnnBackendAttributeName_t name,
                       cudnnBackendAttributeType_t type) {
    std::int64_t count = 0, wide = 0;
    std::int32_t narrow = 0;
    void* value = type == CUDNN_TYPE_INT32 ? static_cast<void*>(&narrow) : &wide;
    check_cudnn(cudnnBackendGetAttribute(descriptor.get(), name, type, 1, &count, value),
                fmt::format("cudnnBackendGetAttribute of {}", static_cast<int>(name)));
    return type == CUDNN_TYPE_INT32 ? narrow : wide;
}

}  // namespace

std::int64_t Graph::Engines::shared_memory(std::size_t i) const {
    return number_of(configs[i], CUDNN_ATTR_ENGINECFG_SHARED_MEMORY_USED, CUDNN_TYPE_INT32);
}
std::int64_t Graph::Engines::workspace(std::size_t i) const {
    return number_of(configs[i], CUDNN_ATTR_ENGINECFG_WORKSPACE_SIZE, CUDNN_TYPE_INT64);
}

ExecutionPlan::ExecutionPlan(cudnnHandle_t handle, const Descriptor& config)
    : plan_(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR) {
    plan_.set(CUDNN_ATTR_EXECUTION_PLAN_HANDLE, CUDNN_TYPE_HANDLE, 1, &handle);
    plan_.set(CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, config);
    plan_.finalize("the execution plan");
}

std::int64_t ExecutionPlan::workspace() const {
    return number_of(plan_, CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE, CUDNN_TYPE_INT64);
}

void ExecutionPlan::bind(const std::vector<std::pair<std::int64_t, void*>>& pointers, void* workspace) {
    std::vector<std::int64_t> ids;
    std::vector<void*> addresses;
    for (const auto& [id, address] : pointers) {
        ids.push_back(id);
        addresses.push_back(address);
    }
    const auto count = static_cast<std::int64_t>(ids.size());
    pack_ = Descriptor(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR);
    pack_.set(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64, count, ids.data());
    pack_.set(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR, count, addresses.data());
    pack_.set(CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, 1, &workspace);
    pack_.finalize("the variant pack");
}

void ExecutionPlan::execute(cudnnHandle_t handle) const {
    check_cudnn(cudnnBackendExecute(handle, plan_.get(), pack_.get()), "cudnnBackendExecute");
}

}  // namespace headroom
