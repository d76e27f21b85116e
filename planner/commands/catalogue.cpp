// SPDX-License-Identifier: Apache-2.0
#include "planner/commands/catalogue.hpp"

#include <fmt/core.h>
#include <fmt/ranges.h>

#include "configs/calibration.hpp"
#include "configs/load.hpp"
#include "models/constraints.hpp"
#include "models/error.hpp"
#include "planner/setting_values.hpp"

namespace headroom {

namespace {

template <class Integer>
Cell integer(Integer value) {
    return static_cast<std::int64_t>(value);
}

/// 0 stands for "not there".
Cell rate(double value) { return value > 0 ? Cell(value) : Cell(); }

std::vector<std::string> names_of(const std::vector<int>& numbers) {
    std::vector<std::string> names;
    for (const int number : numbers) names.push_back(std::to_string(number));
    return names;
}

std::string joined(const std::vector<int>& numbers) {
    std::string text;
    for (const std::string& name : names_of(numbers)) text += (text.empty() ? "" : ", ") + name;
    return text;
}

/// Settings that are said, under their keys; all methods share the columns of a listing.
Record settings_record(const Settings& settings) {
    Record record;
    for (const NamedSetting& setting : setting_values(settings)) {
        Cell cell;
        if (const auto* truth = std::get_if<bool>(&setting.value)) cell = *truth;
        if (const auto* number = std::get_if<std::int64_t>(&setting.value)) cell = *number;
        if (const auto* text = std::get_if<std::string>(&setting.value)) cell = *text;
        record.emplace_back(setting.key, std::move(cell));
    }
    return record;
}

Settings published(Method method) {
    Settings settings = published_recipe(method);
    settings.method = method;
    return settings;
}

void append_shape(Record& record, const Transformer& model) {
    const ParameterCount count = count_parameters(model);
    record.insert(record.end(), {{"layers", integer(model.layers)},
                                 {"hidden", integer(model.hidden)},
                                 {"heads", integer(model.heads)},
                                 {"kv_heads", integer(model.kv_heads)},
                                 {"head_dim", integer(model.head_dim)},
                                 {"ffn", integer(model.ffn)},
                                 {"vocabulary", integer(model.vocabulary)},
                                 {"tied_embeddings", model.tied_embeddings},
                                 {"max_positions", model.max_positions > 0 ? integer(model.max_positions) : Cell()},
                                 {"parameters_per_block", integer(count.block())},
                                 {"parameters_of_attention_per_block", integer(count.attention())},
                                 {"parameters_of_mlp_per_block", integer(count.mlp)},
                                 {"parameters_of_embedding", integer(count.embedding)},
                                 {"parameters_of_head", integer(count.head)},
                                 {"ulysses_degrees", joined(valid_ulysses_degrees(model))}});
}

}  // namespace

Document show_models() {
    Document document{"models", false, {}, 7};
    for (const std::string& name : builtin_models()) {
        const ModelFile file = load_model_file(name);
        const Transformer& model = file.transformer;
        const bool planned = file.refusals.empty();
        const auto shape = [&](std::int64_t value) { return planned ? Cell(value) : Cell(); };
        document.records.push_back({{"name", name},
                                    {"parameters", integer(file.total_parameters)},
                                    {"layers", shape(model.layers)},
                                    {"hidden", shape(model.hidden)},
                                    {"heads", shape(model.heads)},
                                    {"kv_heads", shape(model.kv_heads)},
                                    {"head_dim", shape(model.head_dim)},
                                    {"ffn", shape(model.ffn)},
                                    {"vocabulary", shape(model.vocabulary)}});
    }
    return document;
}

Document show_model(const std::string& name_or_path) {
    const ModelFile file = load_model_file(name_or_path);
    Record record{{"name", file.name},
                  {"source", file.source},
                  {"parameters", file.total_parameters > 0 ? integer(file.total_parameters) : Cell()}};
    if (file.active_parameters != file.total_parameters) {
        record.emplace_back("active_parameters", integer(file.active_parameters));
    }
    if (file.refusals.empty()) append_shape(record, file.transformer);
    record.emplace_back("can_be_planned", file.refusals.empty());
    record.emplace_back("not_modelled", file.refusals);
    record.emplace_back("notes", file.notes);
    return {"model", true, {record}};
}

Document show_clusters() {
    Document document{"clusters", false, {}, 4};
    for (const std::string& name : builtin_clusters()) {
        const Cluster cluster = load_cluster(name);
        document.records.push_back({{"name", name},
                                    {"gpus_per_node", integer(cluster.gpus_per_node)},
                                    {"device_memory_bytes", integer(cluster.device_memory.value)},
                                    {"host_memory_bytes", integer(cluster.host_memory.value)},
                                    {"architecture", cluster.architecture}});
    }
    return document;
}

Document show_cluster(const std::string& name_or_path) {
    const Cluster cluster = load_cluster(name_or_path);
    return {"cluster",
            true,
            {{{"name", cluster.name},
              {"architecture", cluster.architecture},
              {"nodes", integer(cluster.nodes)},
              {"gpus_per_node", integer(cluster.gpus_per_node)},
              {"device_memory_bytes", integer(cluster.device_memory.value)},
              {"host_memory_bytes_per_node", integer(cluster.host_memory.value)},
              {"host_memory_usable_share", cluster.host_memory_usable},
              {"cuda_context_bytes", integer(cluster.cuda_context.value)},
              {"nccl_communicator_bytes", integer(cluster.nccl_communicator.value)},
              {"nccl_group_bytes", integer(cluster.nccl_group.value)},
              {"nccl_peer_buffer_bytes", integer(cluster.nccl_peer_buffer.value)},
              {"peak_bf16_tflops", rate(cluster.peak_bf16.value / 1e12)},
              {"memory_bandwidth_gb_per_s", rate(cluster.memory_bandwidth.value / 1e9)},
              {"nvlink_bandwidth_gb_per_s", rate(cluster.nvlink_bandwidth.value / 1e9)},
              {"pcie_bandwidth_gb_per_s", rate(cluster.pcie_bandwidth.value / 1e9)},
              {"nic_bandwidth_gb_per_s", rate(cluster.nic_bandwidth.value / 1e9)}}}};
}

Document show_recipes() {
    Document document{"recipes", false, {}};
    for (std::size_t i = 0; i < method_names.size(); ++i) {
        const Settings settings = published(static_cast<Method>(i));
        std::string said;
        for (const auto& [key, value] : setting_values(settings)) {
            if (key == "method" || std::holds_alternative<std::monostate>(value)) continue;
            said += fmt::format("{}{}={}", said.empty() ? "" : ", ", key, to_string(value));
        }
        document.records.push_back({{"method", std::string(method_names[i])}, {"published_recipe", said}});
    }
    return document;
}

Document show_recipe(const std::string& method) {
    Settings settings;
    try {
        set(settings, "method=" + method);
    } catch (const Error& error) {
        throw Error(error.what(), "headroom show recipe", error.hint());
    }
    return {"recipe", true, {settings_record(published(*settings.method))}, 99, true};
}

Document show_methods() {
    struct Line {
        Method method;
        const char* what;
        const char* needs;
    };
    static constexpr Line lines[] = {
        {Method::native, "PyTorch context parallel: a ring over K/V repeated to all heads", "any GPU count"},
        {Method::ring, "zig-zag ring attention that passes K/V", "any GPU count"},
        {Method::ulysses, "DeepSpeed-Ulysses: all-to-all from tokens to heads", "GPUs divide the heads"},
        {Method::usp, "Ulysses inside, ring outside", "Ulysses degree divides the heads"},
        {Method::fpdt, "Ulysses in sequence chunks, chunks offloaded to the host", "GPUs divide the heads"},
        {Method::upipe, "Ulysses in stages of a few heads (Untied Ulysses)",
         "heads per stage: a multiple of the Ulysses degree"},
    };
    Document document{"methods", false, {}};
    for (const Line& line : lines) {
        document.records.push_back({{"method", std::string(to_string(line.method))},
                                    {"what_it_does", std::string(line.what)},
                                    {"needs", std::string(line.needs)}});
    }
    return document;
}

Document show_calibrations() {
    Document document{"calibrations", false, {}, 4};
    for (const std::string& name : builtin_calibrations()) {
        const Calibration calibration = load_calibration(name);
        document.records.push_back({{"name", name},
                                    {"kind", calibration.kind},
                                    {"architecture", calibration.architecture},
                                    {"description", calibration.description},
                                    {"clusters", fmt::format("{}", fmt::join(calibration.machines, ", "))}});
    }
    return document;
}

Document show_calibration(const std::string& name_or_path) {
    const Calibration calibration = load_calibration(name_or_path);
    // The reference does not fit a page: JSON and CSV have it.
    Document document{"constants", false, {}, 6};
    for (const NamedConstant& named : constants_of(calibration)) {
        const Constant& constant = named.constant;
        const double unit = named.unit.factor;
        document.records.push_back({{"constant", named.name},
                                    {"value", constant.value / unit},
                                    {"unit", std::string(named.unit.name)},
                                    {"low", constant.low / unit},
                                    {"high", constant.high / unit},
                                    {"source", std::string(to_string(constant.source))},
                                    {"reference", constant.reference}});
    }
    return document;
}

}  // namespace headroom
