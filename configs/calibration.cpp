// SPDX-License-Identifier: Apache-2.0
#include "configs/calibration.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <filesystem>

#include "configs/builtin_data.hpp"
#include "configs/load.hpp"
#include "configs/reader.hpp"
#include "configs/sizes.hpp"

namespace headroom {
namespace {

// What a base is worth on another machine: of the same architecture, and of another one.
constexpr double doubt_within_architecture = 0.15;
constexpr double doubt_across_architectures = 0.30;

const std::string list_hint = "`headroom show calibrations` lists the built-in calibrations";

/// Keys of one map. Unknown and repeated keys are refused, absent ones leave what the base says.
class Map {
 public:
    Map(const Value& value, std::vector<std::string> known) : value_(value) {
        if (!value.is_map())
            throw Error(
                fmt::format("{} must be a map, not {}", value.key.empty() ? "a calibration" : value.key, shown(value)),
                value.where());
        reject_unknown_keys(value, known);
    }
    const Value* get(std::string_view name) const { return find(value_, name); }
    const Value& need(std::string_view name) const {
        if (const Value* value = get(name)) return *value;
        const std::string in = value_.key.empty() ? "the file" : value_.key;
        throw Error(fmt::format("missing {} in {}", name, in), value_.where());
    }
    /// Calls read(value) when the key is there.
    template <class Read>
    void with(std::string_view name, Read&& read) const {
        if (const Value* value = get(name)) read(*value);
    }

 private:
    const Value& value_;
};

struct Unit {
    std::string_view key;
    double factor;
};
constexpr Unit tflops{"tflops", 1e12}, gb_per_s{"gb_per_s", 1e9}, microseconds{"us", 1e-6}, ratio{"ratio", 1.0};

Constant constant(const Value& value, const Unit& unit) {
    const Map map(value, {std::string(unit.key), "spread", "low", "high", "source", "reference"});
    Constant result;
    result.value = number(map.need(unit.key)) * unit.factor;
    if (!(result.value > 0)) throw Error(fmt::format("{} must be more than 0", value.key), value.where());
    if (const Value* spread = map.get("spread")) {
        const double share = number(*spread);
        if (!(share >= 0 && share < 1))
            throw Error(fmt::format("{} must be a share below 1", spread->key), spread->where());
        result.low = result.value * (1 - share);
        result.high = result.value * (1 + share);
    } else {
        result.low = number(map.need("low")) * unit.factor;
        result.high = number(map.need("high")) * unit.factor;
    }
    if (!(result.low > 0 && result.low <= result.value && result.value <= result.high)) {
        throw Error(fmt::format("{}: low, value and high must rise and stay above 0", value.key), value.where());
    }
    result.source = static_cast<Source>(choice(map.need("source"), source_names));
    result.reference = text(map.need("reference"));
    return result;
}

const std::vector<Value>& list(const Value& value, std::size_t size) {
    if (value.is_list() && (size == 0 || value.items.size() == size)) return value.items;
    throw Error(size == 0 ? fmt::format("{} must be a list, not {}", value.key, shown(value))
                          : fmt::format("{} must be a list of {}", value.key, size),
                value.where());
}

void read_curve(AttentionCurve& curve, const Value& value) {
    const Map map(value, {"rate", "half_length", "exponent", "fall", "tail", "lengths"});
    curve = {};
    curve.asymptote = constant(map.need("rate"), tflops);
    curve.half_length = number(map.need("half_length"));
    curve.exponent = number(map.need("exponent"));
    map.with("fall", [&](const Value& v) { curve.fall = number(v); });
    map.with("tail", [&](const Value& v) { curve.tail = number(v); });
    const auto& lengths = list(map.need("lengths"), 2);
    curve.shortest = integer(lengths[0]);
    curve.longest = integer(lengths[1]);
}

void read_kernel(AttentionKernelConstants& kernel, const Value& value) {
    kernel = {};
    if (value.kind == Value::Kind::scalar && value.text == "none") return;  // does not run on this architecture
    const Map map(value, {"ring_overlap", "ring_overlap_source", "exposed", "head_dim_64", "head_dim_256", "forward",
                          "backward"});
    static constexpr std::array<std::string_view, 2> overlaps{"hidden", "serialised"};
    kernel.ring_overlap = static_cast<Overlap>(choice(map.need("ring_overlap"), overlaps));
    kernel.ring_overlap_source = static_cast<Source>(choice(map.need("ring_overlap_source"), source_names));
    map.with("exposed", [&](const Value& v) {
        const Map orders(v, {"collective_first", "attention_first"});
        kernel.exposed_collective_first = constant(orders.need("collective_first"), ratio);
        kernel.exposed_attention_first = constant(orders.need("attention_first"), ratio);
    });
    map.with("head_dim_64", [&](const Value& v) { kernel.head_dim_64 = number(v); });
    map.with("head_dim_256", [&](const Value& v) { kernel.head_dim_256 = number(v); });
    for (std::size_t backward = 0; backward < 2; ++backward) {
        const Map masks(map.need(backward ? "backward" : "forward"), {"full", "causal"});
        masks.with("full", [&](const Value& v) { read_curve(kernel.curves[backward][0], v); });
        masks.with("causal", [&](const Value& v) { read_curve(kernel.curves[backward][1], v); });
    }
}

void read_gemm(GemmConstants& gemm, const Value& value) {
    const Map map(value, {"streaming_multiprocessors", "tile", "epilogue", "table"});
    gemm.streaming_multiprocessors = static_cast<int>(integer(map.need("streaming_multiprocessors")));
    const auto& tile = list(map.need("tile"), 2);
    gemm.tile_rows = static_cast<int>(integer(tile[0]));
    gemm.tile_columns = static_cast<int>(integer(tile[1]));
    map.with("epilogue", [&](const Value& v) { gemm.epilogue = constant(v, ratio); });
    gemm.points.clear();
    for (const Value& row : list(map.need("table"), 0)) {
        const Map point(row, {"m", "n", "k", "rate"});
        gemm.points.push_back({integer(point.need("m")), integer(point.need("n")), integer(point.need("k")),
                               constant(point.need("rate"), tflops)});
    }
}

void read_memory(MemoryConstants& memory, const Value& value) {
    const Map map(value, {"copy_rate", "share", "kernel_start"});
    map.with("copy_rate", [&](const Value& v) { memory.copy_rate = constant(v, gb_per_s); });
    map.with("kernel_start", [&](const Value& v) { memory.kernel_start = constant(v, microseconds); });
    map.with("share", [&](const Value& v) {
        const Map shares(v, {memory_kernel_names.begin(), memory_kernel_names.end()});
        for (std::size_t i = 0; i < memory_kernel_names.size(); ++i) {
            shares.with(memory_kernel_names[i], [&](const Value& share) { memory.share[i] = constant(share, ratio); });
        }
    });
}

LinkCurve link_curve(const Value& value, bool with_groups) {
    const Map keys(value, with_groups
                              ? std::vector<std::string>{"alpha", "alpha_idle", "rate", "ranks", "table", "groups"}
                              : std::vector<std::string>{"alpha", "alpha_idle", "rate", "ranks", "table"});
    LinkCurve link;
    link.alpha = constant(keys.need("alpha"), microseconds);
    link.alpha_idle = constant(keys.need("alpha_idle"), microseconds);
    link.rate = constant(keys.need("rate"), gb_per_s);
    link.ranks = static_cast<int>(integer(keys.need("ranks")));
    for (const Value& row : list(keys.need("table"), 0)) {
        const auto& pair = list(row, 2);
        link.points.push_back({number(pair[0]), number(pair[1]) * 1e-6});
    }
    return link;
}

void read_links(Calibration& calibration, const Value& value) {
    const Map map(value, {link_names.begin(), link_names.end()});
    for (std::size_t i = 0; i < calibration.links.size(); ++i) {
        map.with(link_names[i], [&](const Value& v) {
            calibration.links[i] = link_curve(v, true);
            calibration.smaller_groups[i].clear();
            if (const Value* groups = find(v, "groups")) {
                for (const Value& group : list(*groups, 0)) {
                    calibration.smaller_groups[i].push_back(link_curve(group, false));
                }
            }
        });
    }
}

void read_across(AcrossNodes& across, const Value& value) {
    const Map map(value, {"alpha", "nic_rate", "ring_rate"});
    map.with("alpha", [&](const Value& v) { across.alpha = constant(v, microseconds); });
    map.with("nic_rate", [&](const Value& v) { across.nic_rate = constant(v, gb_per_s); });
    map.with("ring_rate", [&](const Value& v) { across.ring_rate = constant(v, gb_per_s); });
}

void read_host(HostConstants& host, const Value& value) {
    struct Field {
        std::string_view name;
        Constant HostConstants::*member;
        Unit unit;
    };
    static constexpr Field fields[]{
        {"to_host", &HostConstants::to_host, gb_per_s},
        {"to_device", &HostConstants::to_device, gb_per_s},
        {"all_gpus", &HostConstants::all_gpus, ratio},
        {"pageable_fresh", &HostConstants::pageable_fresh, gb_per_s},
        {"pageable_to_host", &HostConstants::pageable_to_host, gb_per_s},
        {"pageable_to_device", &HostConstants::pageable_to_device, gb_per_s},
        {"zero_fill", &HostConstants::zero_fill, gb_per_s},
        {"tokenise", &HostConstants::tokenise, microseconds},
        {"launch", &HostConstants::launch, microseconds},
        {"after_wait", &HostConstants::after_wait, microseconds},
        {"barrier", &HostConstants::barrier, microseconds},
    };
    std::vector<std::string> names;
    for (const Field& field : fields) names.emplace_back(field.name);
    const Map map(value, names);
    for (const Field& field : fields) {
        map.with(field.name, [&](const Value& v) { host.*field.member = constant(v, field.unit); });
    }
}

Datasheet read_datasheet(const Value& value) {
    const Map map(value, {"peak_bf16", "memory_bandwidth", "nvlink_bandwidth", "pcie_bandwidth", "nic_bandwidth"});
    const auto bandwidth = [&](std::string_view name) {
        const Value& v = map.need(name);
        return parse_bandwidth(scalar(v, "a bandwidth"), v.key, v.where()).value;
    };
    const Value& peak = map.need("peak_bf16");
    return {parse_flops(scalar(peak, "a rate"), peak.key, peak.where()).value, bandwidth("memory_bandwidth"),
            bandwidth("nvlink_bandwidth"), bandwidth("pcie_bandwidth"), bandwidth("nic_bandwidth")};
}

Cluster machine(const std::string& name, const std::string& architecture, const Datasheet& datasheet) {
    Cluster cluster;
    cluster.name = name;
    cluster.architecture = architecture;
    cluster.peak_bf16 = {datasheet.peak_bf16};
    cluster.memory_bandwidth = {datasheet.memory_bandwidth};
    cluster.nvlink_bandwidth = {datasheet.nvlink};
    cluster.pcie_bandwidth = {datasheet.pcie};
    cluster.nic_bandwidth = {datasheet.nic};
    return cluster;
}

double doubt(const std::string& from, const std::string& to) {
    return from == to ? doubt_within_architecture : doubt_across_architectures;
}

Calibration read(const std::string& text_of_file, const std::string& file, const std::string& name);

Calibration builtin(const std::string& name) {
    return read(std::string(*builtin_text("calibrations", name)), "calibrations/" + name + ".yaml", name);
}

Calibration read(const std::string& text_of_file, const std::string& file, const std::string& name) {
    const Value root = parse_yaml(text_of_file, file);
    const Map map(root, {"schema", "base", "description", "architecture", "kind", "machines", "datasheet", "attention",
                         "gemm", "memory", "links", "across_nodes", "collective_share", "host"});
    const Value& schema = map.need("schema");
    if (integer(schema) != 1) {
        throw Error(fmt::format("schema {} is not known", schema.text), schema.where(), "this program reads schema 1");
    }

    Calibration result;
    const Datasheet datasheet = read_datasheet(map.need("datasheet"));
    const Value* base = map.get("base");
    if (base) {
        if (base->text == name || !builtin_text("calibrations", base->text)) {
            const std::string near = did_you_mean(base->text, builtin_calibrations());
            throw Error(fmt::format("base names no built-in calibration: '{}'", base->text), base->where(),
                        near.empty() ? list_hint : fmt::format("did you mean {}?", near));
        }
        const Calibration from = builtin(base->text);
        std::string architecture = from.architecture;
        map.with("architecture", [&](const Value& v) { architecture = text(v); });
        result = derive(from, machine(name, architecture, datasheet), doubt(from.architecture, architecture));
    } else {
        result.architecture = text(map.need("architecture"));
        for (const char* needed : {"attention", "gemm", "memory", "links", "across_nodes", "host"}) map.need(needed);
    }
    result.name = name;
    result.datasheet = datasheet;
    result.machines.clear();
    result.kind = text(map.need("kind"));
    map.with("description", [&](const Value& v) { result.description = text(v); });
    for (const Value& item : list(map.need("machines"), 0)) result.machines.push_back(text(item));
    map.with("attention", [&](const Value& v) {
        const Map kernels(v, {attention_kernel_names.begin(), attention_kernel_names.end()});
        for (std::size_t i = 0; i < attention_kernel_names.size(); ++i) {
            kernels.with(attention_kernel_names[i], [&](const Value& k) { read_kernel(result.attention[i], k); });
        }
    });
    map.with("gemm", [&](const Value& v) { read_gemm(result.gemm, v); });
    map.with("memory", [&](const Value& v) { read_memory(result.memory, v); });
    map.with("links", [&](const Value& v) { read_links(result, v); });
    map.with("across_nodes", [&](const Value& v) { read_across(result.across_nodes, v); });
    map.with("collective_share", [&](const Value& v) { result.collective_share = constant(v, ratio); });
    map.with("host", [&](const Value& v) { read_host(result.host, v); });
    check(result);
    return result;
}

}  // namespace

Calibration load_calibration(const std::string& name_or_path) {
    if (builtin_text("calibrations", name_or_path)) return builtin(name_or_path);
    const std::filesystem::path path(name_or_path);
    if (!std::filesystem::exists(path)) {
        const std::string near = did_you_mean(name_or_path, builtin_calibrations());
        throw Error(fmt::format("no built-in calibration or file is called '{}'", name_or_path), name_or_path,
                    near.empty() ? list_hint : fmt::format("did you mean {}? {}", near, list_hint));
    }
    return read(read_text_file(name_or_path), name_or_path, path.stem().string());
}

std::vector<std::string> builtin_calibrations() { return builtin_names("calibrations"); }

Calibration calibration_for(const Cluster& cluster) {
    std::vector<Calibration> all;
    for (const std::string& name : builtin_calibrations()) all.push_back(builtin(name));
    for (const Calibration& one : all) {
        if (std::find(one.machines.begin(), one.machines.end(), cluster.name) != one.machines.end()) return one;
    }
    // Nearest: the same architecture first, then peak and memory bandwidth by their logarithms.
    const auto distance = [&](const Calibration& one) {
        return (one.architecture == cluster.architecture ? 0.0 : 100.0) +
               std::abs(std::log(cluster.peak_bf16.value / one.datasheet.peak_bf16)) +
               std::abs(std::log(cluster.memory_bandwidth.value / one.datasheet.memory_bandwidth));
    };
    const Calibration& nearest = *std::min_element(
        all.begin(), all.end(), [&](const Calibration& a, const Calibration& b) { return distance(a) < distance(b); });
    return derive(nearest, cluster, doubt(nearest.architecture, cluster.architecture));
}

}  // namespace headroom
