// SPDX-License-Identifier: Apache-2.0
// Every input and every constant of the page, with its source.
#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "planner/report_html.hpp"
#include "planner/setting_values.hpp"
#include "reports/numbers.hpp"

namespace headroom {
namespace {

std::string yes_no(bool value) { return value ? "yes" : "no"; }

HtmlTable model_table(const Transformer& model) {
    const auto number = [](std::int64_t value) { return with_separators(value); };
    return {"Model",
            {{"Shape", false}, {"Value", true}},
            {{"name", model.name},
             {"parameters", number(count_parameters(model).total())},
             {"layers", number(model.layers)},
             {"hidden size", number(model.hidden)},
             {"query heads", number(model.heads)},
             {"key/value heads", number(model.kv_heads)},
             {"head dimension", number(model.head_dim)},
             {"MLP width", number(model.ffn)},
             {"MLP", model.mlp == MlpKind::gated ? "gated" : "plain"},
             {"vocabulary", number(model.vocabulary)},
             {"tied embeddings", yes_no(model.tied_embeddings)},
             {"positions it was trained for", model.max_positions > 0 ? number(model.max_positions) : "not said"}}};
}

HtmlTable cluster_table(const Cluster& cluster) {
    return {"Cluster",
            {{"Property", false}, {"Value", true}},
            {{"name", cluster.name},
             {"nodes", fmt::format("{}", cluster.nodes)},
             {"GPUs per node", fmt::format("{}", cluster.gpus_per_node)},
             {"GPU memory, GiB", gib(cluster.device_memory)},
             {"host memory per node, GiB", gib(cluster.host_memory)},
             {"share of it for training", fmt::format("{:.0f}%", 100 * cluster.host_memory_usable)},
             {"dense bf16 peak, TFLOP/s", fmt::format("{:.4g}", cluster.peak_bf16.value / 1e12)},
             {"memory bandwidth, GB/s", gigabytes_per_second(cluster.memory_bandwidth)},
             {"NVLink per GPU and direction, GB/s", gigabytes_per_second(cluster.nvlink_bandwidth)},
             {"PCIe per GPU and direction, GB/s", gigabytes_per_second(cluster.pcie_bandwidth)},
             {"NIC per GPU and direction, GB/s", gigabytes_per_second(cluster.nic_bandwidth)},
             {"CUDA context, GiB", gib(cluster.cuda_context)},
             {"NCCL, first communicator, GiB", gib(cluster.nccl_communicator)},
             {"NCCL, each further one, GiB", gib(cluster.nccl_group)},
             {"NCCL, each peer, GiB", gib(cluster.nccl_peer_buffer)}}};
}

HtmlTable recipe_table(const Study& study) {
    HtmlTable table{"Settings of each method at the context of comparison, under the names of recipe files",
                    {{"Setting", false}},
                    {}};
    std::vector<std::vector<NamedSetting>> settings;
    for (const MethodStudy& method : study.methods) {
        if (!method.at_focus) continue;
        table.columns.push_back({display_name(method.method), false});
        settings.push_back(setting_values(method.at_focus->recipe));
    }
    if (settings.empty()) return table;
    for (std::size_t i = 0; i < settings.front().size(); ++i) {
        std::vector<std::string> row{std::string(settings.front()[i].key)};
        for (const auto& list : settings) row.push_back(to_string(list[i].value));
        table.rows.push_back(row);
    }
    return table;
}

class ConstantTable {
 public:
    ConstantTable()
        : table_{"Constants of step times",
                 {{"Constant", false},
                  {"Value", true},
                  {"Range", true},
                  {"Unit", false},
                  {"Source", false},
                  {"Reference", false}},
                 {}} {}

    /// `unit` is what one unit of the column is worth in SI.
    void add(const std::string& name, const Constant& constant, double unit, const char* unit_name) {
        if (constant.value == 0 && constant.high == 0) return;
        table_.rows.push_back({name, number(constant.value / unit),
                               fmt::format("{} to {}", number(constant.low / unit), number(constant.high / unit)),
                               unit_name, std::string(to_string(constant.source)), constant.reference});
    }
    void note(const std::string& name, const std::string& value, const std::string& reference) {
        table_.rows.push_back({name, value, "", "", "", reference});
    }
    HtmlTable take() { return std::move(table_); }

 private:
    static std::string number(double value) {
        return value >= 10000 ? with_separators(static_cast<std::int64_t>(value)) : fmt::format("{:.4g}", value);
    }
    HtmlTable table_;
};

void add_attention(ConstantTable& table, const Calibration& calibration, const std::set<AttentionKernel>& kernels) {
    static constexpr const char* directions[] = {"forward", "backward"};
    static constexpr const char* masks[] = {"full", "causal"};
    for (const AttentionKernel kernel : kernels) {
        const auto& constants = calibration.attention[static_cast<std::size_t>(kernel)];
        for (std::size_t i = 0; i < 2; ++i) {
            for (std::size_t j = 0; j < 2; ++j) {
                const AttentionCurve& curve = constants.curves[i][j];
                if (!curve.known()) continue;
                const std::string name =
                    fmt::format("{} attention, {}, {} mask", to_string(kernel), directions[i], masks[j]);
                table.add(name, curve.asymptote, 1e12, "TFLOP/s");
                table.note(
                    name + ", shape",
                    fmt::format("s0 {:.4g}, p {:.3g}, fall {:.3g}", curve.half_length, curve.exponent, curve.fall),
                    fmt::format("fitted on {} to {} tokens", with_separators(curve.shortest),
                                with_separators(curve.longest)));
            }
        }
    }
}

void add_links(ConstantTable& table, const Calibration& calibration) {
    for (std::size_t i = 0; i < calibration.links.size(); ++i) {
        const LinkCurve& link = calibration.links[i];
        const std::string name{link_names[i]};
        table.add(name + ", start-up", link.alpha, 1e-6, "us");
        table.add(name + ", start-up on an idle stream", link.alpha_idle, 1e-6, "us");
        table.add(fmt::format("{} over {} ranks, large messages", name, link.ranks), link.rate, 1e9, "GB/s per GPU");
    }
    const AcrossNodes& across = calibration.across_nodes;
    table.add("between nodes, start-up", across.alpha, 1e-6, "us");
    table.add("between nodes, one GPU's NIC", across.nic_rate, 1e9, "GB/s");
    table.add("between nodes, rings", across.ring_rate, 1e9, "GB/s");
}

void add_host(ConstantTable& table, const HostConstants& host) {
    table.add("pinned copy to the host, one GPU", host.to_host, 1e9, "GB/s");
    table.add("pinned copy to the device, one GPU", host.to_device, 1e9, "GB/s");
    table.add("share of it when all GPUs copy", host.all_gpus, 1, "");
    table.add("pageable copy into new memory", host.pageable_fresh, 1e9, "GB/s");
    table.add("pageable copy to the host", host.pageable_to_host, 1e9, "GB/s");
    table.add("pageable copy to the device", host.pageable_to_device, 1e9, "GB/s");
    table.add("filling host memory with zeros", host.zero_fill, 1e9, "GB/s");
    table.add("tokenising", host.tokenise, 1e-6, "us per token");
    table.add("launch of one kernel", host.launch, 1e-6, "us");
    table.add("from a dry stream to the next kernel", host.after_wait, 1e-6, "us");
    table.add("barrier", host.barrier, 1e-6, "us");
}

}  // namespace

HtmlSection input_section(const Study& study) {
    HtmlSection section{"inputs", "Inputs", {}, {}, {}};
    section.tables = {recipe_table(study), model_table(study.model), cluster_table(study.cluster)};
    return section;
}

HtmlSection constant_section(const Study& study) {
    const Calibration& calibration = *study.calibration;
    HtmlSection section{"constants", "Constants and their sources", {}, {}, {}};
    section.paragraphs.push_back(
        fmt::format("Step times rest on the calibration {} ({}): {}. A range is how far the constant may be off; the "
                    "intervals of this page come from the ranges. Memory rests on no constant but those of the "
                    "cluster.",
                    calibration.name, calibration.kind, calibration.description));
    std::set<AttentionKernel> kernels;
    for (const MethodStudy& method : study.methods) {
        if (method.at_focus) kernels.insert(method.at_focus->recipe.attention_kernel);
    }
    ConstantTable table;
    add_attention(table, calibration, kernels);
    for (const GemmPoint& point : calibration.gemm.points) {
        table.add(fmt::format("matrix product {} x {} x {}", point.m, point.n, point.k), point.rate, 1e12, "TFLOP/s");
    }
    table.add("memory copy", calibration.memory.copy_rate, 1e9, "GB/s");
    for (std::size_t i = 0; i < memory_kernel_names.size(); ++i) {
        table.add(fmt::format("{} kernels, share of the copy rate", memory_kernel_names[i]),
                  calibration.memory.share[i], 1, "");
    }
    table.add("start of one kernel", calibration.memory.kernel_start, 1e-6, "us");
    add_links(table, calibration);
    add_host(table, calibration.host);
    table.add("share of the SMs that a collective takes", calibration.collective_share, 1, "");
    section.tables.push_back(table.take());
    return section;
}

}  // namespace headroom
