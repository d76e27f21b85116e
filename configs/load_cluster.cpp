// SPDX-License-Identifier: Apache-2.0
// Clusters: the built-in ones, and YAML files that describe one from scratch or change a built-in one with `base:`.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <filesystem>

#include "configs/builtin_data.hpp"
#include "configs/inline.hpp"
#include "configs/load.hpp"
#include "configs/reader.hpp"
#include "configs/sizes.hpp"

namespace headroom {
namespace {

Bytes bytes(const Value& value) { return parse_bytes(scalar(value, "a size"), value.key, value.where()); }
BytesPerSecond bandwidth(const Value& value) {
    return parse_bandwidth(scalar(value, "a bandwidth"), value.key, value.where());
}

int count(const Value& value) {
    constexpr std::int64_t most = 1'000'000;
    const std::int64_t number = integer(value);
    if (number >= 1 && number <= most) return static_cast<int>(number);
    throw Error(fmt::format("{} must be between 1 and {}, not {}", value.key, most, number), value.where());
}

void require_positive(bool positive, const Value& value) {
    if (!positive) throw Error(fmt::format("{} must be more than 0", value.key), value.where());
}

struct Key {
    std::string_view name;
    bool required;  ///< when there is no `base`
    void (*read)(Cluster&, const Value&);
};

constexpr Key keys[]{
    {"name", false, [](Cluster& c, const Value& v) { c.name = text(v); }},
    {"architecture", true,
     [](Cluster& c, const Value& v) {
         static constexpr std::array<std::string_view, 3> names{"ampere", "hopper", "blackwell"};
         c.architecture = names[choice(v, names)];
     }},
    {"nodes", false, [](Cluster& c, const Value& v) { c.nodes = count(v); }},
    {"gpus_per_node", true, [](Cluster& c, const Value& v) { c.gpus_per_node = count(v); }},
    {"device_memory", true,
     [](Cluster& c, const Value& v) { require_positive((c.device_memory = bytes(v)).value > 0, v); }},
    {"host_memory", true,
     [](Cluster& c, const Value& v) { require_positive((c.host_memory = bytes(v)).value > 0, v); }},
    {"host_memory_usable", false,
     [](Cluster& c, const Value& v) {
         c.host_memory_usable = number(v);
         if (c.host_memory_usable > 0 && c.host_memory_usable <= 1) return;
         throw Error(fmt::format("{} must be a share between 0 and 1, not {}", v.key, v.text), v.where());
     }},
    {"peak_bf16", true,
     [](Cluster& c, const Value& v) {
         c.peak_bf16 = parse_flops(scalar(v, "a rate"), v.key, v.where());
         require_positive(c.peak_bf16.value > 0, v);
     }},
    {"memory_bandwidth", true,
     [](Cluster& c, const Value& v) { require_positive((c.memory_bandwidth = bandwidth(v)).value > 0, v); }},
    {"nvlink_bandwidth", true, [](Cluster& c, const Value& v) { c.nvlink_bandwidth = bandwidth(v); }},
    {"pcie_bandwidth", true,
     [](Cluster& c, const Value& v) { require_positive((c.pcie_bandwidth = bandwidth(v)).value > 0, v); }},
    {"nic_bandwidth", true,
     [](Cluster& c, const Value& v) { require_positive((c.nic_bandwidth = bandwidth(v)).value > 0, v); }},
    {"cuda_context", true, [](Cluster& c, const Value& v) { c.cuda_context = bytes(v); }},
    {"nccl_communicator", true, [](Cluster& c, const Value& v) { c.nccl_communicator = bytes(v); }},
    {"nccl_group", true, [](Cluster& c, const Value& v) { c.nccl_group = bytes(v); }},
    {"nccl_peer_buffer", true, [](Cluster& c, const Value& v) { c.nccl_peer_buffer = bytes(v); }},
};

const std::string list_hint = "`headroom show clusters` lists the built-in clusters";

std::optional<Cluster> builtin_cluster(const std::string& name);

}  // namespace

Cluster read_cluster(const Value& root, const std::string& name) {
    if (!root.is_map()) {
        throw Error(fmt::format("a cluster must be a map of keys, not {}", shown(root)), root.where(),
                    "begin with for example 'base: h100-sxm-80gb'");
    }
    std::vector<std::string> known{"base"};
    for (const Key& key : keys) known.emplace_back(key.name);
    reject_unknown_keys(root, known);

    Cluster cluster;
    const Value* base = find(root, "base");
    if (base) {
        const auto inherited = builtin_cluster(headroom::text(*base));
        if (!inherited) {
            const std::string near = did_you_mean(base->text, builtin_clusters());
            throw Error(fmt::format("base names no built-in cluster: '{}'", base->text), base->where(),
                        near.empty() ? list_hint : fmt::format("did you mean {}?", near));
        }
        cluster = *inherited;
    }
    cluster.name = name;
    std::vector<std::string_view> missing;
    for (const Key& key : keys) {
        if (const Value* value = find(root, key.name)) {
            key.read(cluster, *value);
        } else if (key.required && !base) {
            missing.push_back(key.name);
        }
    }
    if (!missing.empty()) {
        throw Error(fmt::format("missing {}", fmt::join(missing, ", ")), root.place,
                    "add them, or inherit with for example 'base: h100-sxm-80gb'");
    }
    return cluster;
}

namespace {

std::optional<Cluster> builtin_cluster(const std::string& name) {
    const auto text = builtin_text("clusters", name);
    if (!text) return std::nullopt;
    return read_cluster(parse_yaml(std::string(*text), "clusters/" + name + ".yaml"), name);
}

}  // namespace

Cluster load_cluster(const std::string& name_or_path) {
    if (const auto cluster = builtin_cluster(name_or_path)) return *cluster;
    const std::filesystem::path path(name_or_path);
    if (!std::filesystem::exists(path)) {
        const std::string near = did_you_mean(name_or_path, builtin_clusters());
        throw Error(fmt::format("no built-in cluster or file is called '{}'", name_or_path), name_or_path,
                    near.empty() ? list_hint : fmt::format("did you mean {}? {}", near, list_hint));
    }
    return read_cluster(parse_yaml(read_text_file(name_or_path), name_or_path), path.stem().string());
}

std::vector<std::string> builtin_clusters() { return builtin_names("clusters"); }

}  // namespace headroom
